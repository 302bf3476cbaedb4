import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { BlobStore } from './blob-store.ts';
import { FolderBlobStore } from './folder-blob-store.ts';
import { offload, offloadResult, PayloadTooLarge, restore } from './offload.ts';

const sessionId = 'ses_1';

async function folder(): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-blobs-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  return root;
}

test('a value that fits is unchanged; otherwise its largest strings are moved until it fits', async () => {
  const blobs = new FolderBlobStore(await folder());
  const value = { a: 'x'.repeat(5_000), b: ['y'.repeat(3_000), 'z'.repeat(100)], c: 1 };
  expect(await offload(value, { blobs, sessionId, maxBytes: 10_000 })).toBe(value);
  const stored = await offload(value, { blobs, sessionId, maxBytes: 4_000 });
  expect(stored).toEqual({ ...value, a: { $blob: expect.stringMatching(/^[0-9a-f]{64}$/) } });
  expect(await restore(stored, { blobs, sessionId })).toEqual(value);
});

test('at most 16 KiB of a result stay in the history, except for strings too small to move', async () => {
  const blobs = new FolderBlobStore(await folder());
  const bytesOf = (value: unknown) => Buffer.byteLength(JSON.stringify(value));
  const texts = Array.from({ length: 30 }, (_, i) => ({ id: `evt_${i}`, content: `${i} `.padEnd(4_000, 'x') }));
  const stored = await offloadResult(texts, { blobs, sessionId });
  expect(bytesOf(stored)).toBeLessThanOrEqual(16 * 1024);
  expect(await restore(stored, { blobs, sessionId })).toEqual(texts);
  const calls = Array.from({ length: 1_000 }, (_, i) => ({ id: `call_${i}`, arguments: 'x'.repeat(80) }));
  expect(bytesOf(calls)).toBeGreaterThan(100 * 1024);
  expect(await offloadResult(calls, { blobs, sessionId })).toEqual(calls);
  await expect(offloadResult([...calls, ...calls], { blobs, sessionId })).rejects.toThrow(PayloadTooLarge);
});

test('a value that cannot fit is rejected before anything is written', async () => {
  const root = await folder();
  const value = Array.from({ length: 2_000 }, (_, i) => `${i} ${'x'.repeat(1_500)}`);
  const offloaded = offload(value, { blobs: new FolderBlobStore(root), sessionId, maxBytes: 50_000 });
  await expect(offloaded).rejects.toThrow(PayloadTooLarge);
  expect(await readdir(root)).toEqual([]);
});

test('thousands of blobs are written with few files open at once', async () => {
  const blobs = new FolderBlobStore(await folder());
  const value = Array.from({ length: 3_000 }, (_, i) => `${i} ${'x'.repeat(1_500)}`);
  const stored = await offload(value, { blobs, sessionId, maxBytes: 300_000 });
  expect(await restore(stored, { blobs, sessionId })).toEqual(value);
});

test('a failing store rejects the call with its error, however many blobs were being written', async () => {
  const full = new Error('ENOSPC');
  const blobs: BlobStore = {
    put: () => Promise.reject(full),
    get: () => Promise.reject(full),
    list: () => {
      throw full;
    },
    delete: () => Promise.reject(full),
    deleteAll: () => Promise.reject(full),
    check: () => Promise.resolve(),
    close: () => undefined,
  };
  const value = Array.from({ length: 50 }, () => 'x'.repeat(5_000));
  await expect(offload(value, { blobs, sessionId, maxBytes: 20_000 })).rejects.toBe(full);
});
