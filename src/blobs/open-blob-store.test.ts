import { expect, test, vi } from 'vitest';
import { loadConfig } from '../config.ts';
import { NO_ENCRYPTION } from '../encryption/cipher.ts';
import { openBlobStore } from './open-blob-store.ts';

const sdk = vi.hoisted(() => ({ isLoaded: false }));

vi.mock('@aws-sdk/client-s3', (original) => {
  sdk.isLoaded = true;
  return original();
});

test('the AWS SDK, which takes 0.1 s to load, is loaded for blobs in S3 only', async () => {
  await import('../server/all-in-one.ts');
  const folder = await openBlobStore(loadConfig({}), NO_ENCRYPTION);
  folder.close();
  expect(sdk.isLoaded).toBe(false);
  const s3 = await openBlobStore(loadConfig({ EVERTURN_BLOBS: 's3://bucket' }), NO_ENCRYPTION);
  s3.close();
  expect(sdk.isLoaded).toBe(true);
});
