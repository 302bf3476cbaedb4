import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  CopyObjectCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { BlobsUnavailable, BlobTooLarge } from '../../src/blobs/blob-store.ts';
import { S3BlobStore } from '../../src/blobs/s3-blob-store.ts';
import { testBlobStore } from '../support/blob-store-contract.ts';
import { BUCKET, TestS3 } from '../support/s3.ts';

const prefix = 'some/where';
const sessionId = 'ses_1';
const content = Buffer.from('the content');

let s3: TestS3;
beforeAll(async () => {
  s3 = await TestS3.start();
  // Not what the user of this machine has configured.
  const env = { ...s3.envFor(prefix), AWS_CONFIG_FILE: '/dev/null', AWS_SHARED_CREDENTIALS_FILE: '/dev/null' };
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
});
afterAll(async () => {
  await s3.stop();
  vi.unstubAllEnvs();
});

function open(location: { bucket?: string; endpoint?: string } = {}): S3BlobStore {
  return new S3BlobStore({ bucket: BUCKET, prefix, endpoint: s3.endpoint, ...location });
}

describe('S3', () => {
  const objectOf = (session: string, blob: string) => ({ Bucket: BUCKET, Key: `${prefix}/${session}/${blob}` });
  testBlobStore(() => ({
    open: (cipher) => new S3BlobStore({ bucket: BUCKET, prefix, endpoint: s3.endpoint }, cipher),
    read: async (session, blob) => {
      const { Body } = await s3.client.send(new GetObjectCommand(objectOf(session, blob)));
      return Buffer.from((await Body?.transformToByteArray()) ?? []);
    },
    move: async (blob, from, to) => {
      const moved = objectOf(from, blob);
      const CopySource = `${moved.Bucket}/${moved.Key}`;
      await s3.client.send(new CopyObjectCommand({ ...objectOf(to, blob), CopySource }));
      await s3.client.send(new DeleteObjectCommand(moved));
    },
    crash: async (session) => {
      const object = objectOf(session, 'a'.repeat(64));
      const { UploadId } = await s3.client.send(new CreateMultipartUploadCommand(object));
      await s3.client.send(new UploadPartCommand({ ...object, UploadId, PartNumber: 1, Body: 'half' }));
    },
  }));
});

test('a bucket may be used without a prefix', async () => {
  const store = new S3BlobStore({ bucket: BUCKET, prefix: '', endpoint: s3.endpoint });
  const name = await store.put(sessionId, content);
  expect(await s3.objects(sessionId)).toEqual([name]);
  await store.deleteAll(sessionId);
  expect(await s3.objects(sessionId)).toEqual([]);
});

test('a wrong bucket, wrong credentials and a missing region are errors that say so', async () => {
  const reason = async (store: S3BlobStore) => {
    const error = await store.check().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(BlobsUnavailable);
    return (error as Error).message;
  };
  expect(await reason(open({ bucket: 'elsewhere' }))).toBe(
    's3://elsewhere/some/where/: NoSuchBucket: The specified bucket does not exist',
  );
  const withEnv = async (name: string, value: string | undefined) => {
    const given = process.env[name];
    vi.stubEnv(name, value);
    onTestFinished(() => void vi.stubEnv(name, given));
    const found = await reason(open());
    vi.stubEnv(name, given);
    return found;
  };
  expect(await withEnv('AWS_SECRET_ACCESS_KEY', 'another')).toMatch(/: SignatureDoesNotMatch: /);
  expect(await withEnv('AWS_REGION', undefined)).toMatch(/: Region is missing$/);
});

test('while the server is down or hangs, every operation fails as unavailable; then everything is there', async () => {
  const store = open();
  const [name, unused] = await Promise.all([
    store.put(sessionId, content),
    store.put(sessionId, Buffer.from('unused')),
  ]);
  const expectUnavailable = async () => {
    const operations = [
      store.put(sessionId, content),
      store.put(sessionId, Buffer.alloc(20 * 1024 * 1024)),
      store.get(sessionId, name),
      Array.fromAsync(store.list(sessionId)),
      // A server that hung carries this out later.
      store.delete(sessionId, [unused]),
      store.deleteAll(sessionId),
      store.check(),
    ];
    const failures = await Promise.all(
      operations.map((operation) =>
        operation.then(
          () => 'done',
          (error: unknown) => error,
        ),
      ),
    );
    for (const failure of failures) expect(failure).toBeInstanceOf(BlobsUnavailable);
  };
  await s3.down();
  await expectUnavailable();
  await s3.up();
  s3.hang();
  await expectUnavailable();
  s3.goOn();
  await store.check();
  expect(await store.get(sessionId, name)).toEqual(content);
});

test('an object that is cut off in transit is unavailable, and nothing of it is returned', async () => {
  const store = open();
  const name = await store.put(sessionId, Buffer.alloc(1_000_000));
  const proxy = createServer((_, response) => {
    response.writeHead(200, { 'content-length': '1000000' });
    response.write('x'.repeat(100_000), () => response.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  onTestFinished(() => void proxy.close());
  const { port } = proxy.address() as AddressInfo;
  await expect(open({ endpoint: `http://127.0.0.1:${port}` }).get(sessionId, name)).rejects.toThrow(BlobsUnavailable);
});

test('no more is read of an object without an announced length than is allowed', async () => {
  const closed = Promise.withResolvers<void>();
  const endless = createServer((_, response) => {
    response.once('close', closed.resolve);
    const more = () => {
      while (response.write('x'.repeat(100_000)));
    };
    response.on('drain', more);
    more();
  });
  endless.listen(0, '127.0.0.1');
  await once(endless, 'listening');
  onTestFinished(() => void endless.close());
  const { port } = endless.address() as AddressInfo;
  const read = open({ endpoint: `http://127.0.0.1:${port}` }).get(sessionId, 'a'.repeat(64), 1_000);
  await expect(read).rejects.toThrow(BlobTooLarge);
  await closed.promise;
});
