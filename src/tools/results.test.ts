import path from 'node:path';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { FolderBlobStore } from '../blobs/folder-blob-store.ts';
import type { FileContent } from '../blobs/store-files.ts';
import { offloadResult } from '../blobs/offload.ts';
import { readResult, storeToolResult } from './results.ts';

const sessionId = 'ses_1';

/** A result as it enters the history. */
async function stored({ text, files }: { text: string; files: FileContent[] }) {
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-results-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const blobs = new FolderBlobStore(root);
  const kept = await storeToolResult({ text, files }, { blobs, sessionId });
  return { kept, bytes: Buffer.byteLength(JSON.stringify(await offloadResult([kept], { blobs, sessionId }))) };
}

const KIB = 1024;
const base64 = (bytes: number) => Buffer.alloc(bytes, 1).toString('base64');

test.each([
  ['a long text', { text: 'x'.repeat(100 * KIB), files: [] }],
  ['a text that is cut', { text: '"'.repeat(2_000 * KIB), files: [] }],
  ['small files', { text: '', files: Array.from({ length: 60 }, (_, i) => file(`${i}.png`, 900)) }],
  ['a file', { text: 'a file', files: [file('a.png', 60 * KIB)] }],
])('%s leaves at most 16 KiB in the history', async (_, result) => {
  const { bytes } = await stored(result);
  expect(bytes).toBeLessThanOrEqual(16 * KIB);
});

test('a text that is cut names the file that has all of it', async () => {
  const text = 'x'.repeat(300 * KIB);
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-results-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const blobs = new FolderBlobStore(root);
  const { content, files, fullText } = await storeToolResult({ text, files: [] }, { blobs, sessionId });
  expect(content).toMatch(/^x+\n\[\d+ characters left out; result\.txt has the whole result\]\nx+$/);
  expect(files).toBeUndefined();
  expect(fullText).toMatchObject({ name: 'result.txt', mimeType: 'text/plain', bytes: text.length, sessionId });
  expect((await blobs.get(sessionId, fullText?.blob ?? '')).toString() === text).toBe(true);
});

function file(name: string, bytes: number): FileContent {
  return { name, mimeType: 'image/png', base64: base64(bytes) };
}

test('as many files are kept as there is room for, however long their types and names are', async () => {
  const image = { type: 'image' as const, data: base64(1) };
  const most = { type: 'resource' as const, resource: { uri: `file:///${'n'.repeat(300)}`, blob: base64(1) } };
  const type = `${'t'.repeat(127)}/${'s'.repeat(127)}`;
  const short = await stored(
    readResult({ content: Array.from({ length: 300 }, () => ({ ...image, mimeType: 'a/b' })) }),
  );
  expect(short.kept.files).toHaveLength(100);
  expect(short.kept.content).toMatch(/\[200 more files of this result were left out\]$/);
  const content = Array.from({ length: 300 }, () => ({ ...most, resource: { ...most.resource, mimeType: type } }));
  const long = await stored(readResult({ content }));
  expect(long.kept.files?.length).toBeGreaterThan(50);
  expect(Buffer.byteLength(JSON.stringify(long.kept.files))).toBeLessThanOrEqual(40 * KIB);
  expect(long.bytes).toBeLessThanOrEqual(48 * KIB);
});
