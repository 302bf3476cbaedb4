import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe } from 'vitest';
import { testBlobStore } from '../../test/support/blob-store-contract.ts';
import { FolderBlobStore } from './folder-blob-store.ts';

// The other store is tested in test/integration/s3-blob-store.test.ts, because it needs a server.
describe('the folder', () => {
  let root: string;
  beforeAll(async () => {
    root = await mkdtemp(path.join(tmpdir(), 'everturn-blobs-'));
  });
  afterAll(() => rm(root, { recursive: true, force: true }));

  const fileOf = (sessionId: string, blob: string) => path.join(root, sessionId, blob);
  testBlobStore(() => ({
    open: (cipher) => new FolderBlobStore(root, cipher),
    read: (sessionId, blob) => readFile(fileOf(sessionId, blob)),
    move: async (blob, from, to) => {
      await mkdir(path.join(root, to), { recursive: true });
      await rename(fileOf(from, blob), fileOf(to, blob));
    },
    crash: (sessionId) => writeFile(fileOf(sessionId, '.unfinished'), 'half'),
  }));
});
