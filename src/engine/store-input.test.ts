import { expect, test } from 'vitest';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { InputItem, StoredFile } from '../core/records/input.ts';
import { inputFiles, storeInput } from './store-input.ts';

function file(name: string, bytes: number): StoredFile {
  const base64 = Buffer.alloc(bytes).toString('base64');
  return { type: 'file', name, mimeType: 'image/png', bytes, base64 };
}

/** A blob store that only counts what is put into it. */
function countingStore() {
  const stored: number[] = [];
  const put: BlobStore['put'] = (_sessionId, content) => Promise.resolve(`blob_${stored.push(content.length)}`);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only `put` is used
  return { stored, blobs: { put } as BlobStore };
}

test('large files of an input are moved into the blob store; small files and texts stay in place', async () => {
  const { stored, blobs } = countingStore();
  const small = file('small.png', 1_000);
  const large = file('large.png', 100_000);
  const input: InputItem[] = [
    { type: 'user.message', content: 'look' },
    { type: 'user.message', content: [{ type: 'text', text: 'both' }, large, small] },
  ];
  const result = await storeInput(input, { blobs, sessionId: 'ses_1' });
  expect(stored).toEqual([100_000]);
  const reference = { type: 'file', name: 'large.png', mimeType: 'image/png', bytes: 100_000, blob: 'blob_1' };
  expect(result).toEqual([
    input[0],
    { type: 'user.message', content: [{ type: 'text', text: 'both' }, reference, small] },
  ]);
  expect(inputFiles(result)).toEqual([reference, small]);
});

test('files that exceed the inline limit together are stored, even if each of them is small', async () => {
  const { stored, blobs } = countingStore();
  const files = Array.from({ length: 6 }, (_, i) => file(`${i}.png`, 60_000));
  await storeInput([{ type: 'user.message', content: files }], { blobs, sessionId: 'ses_1' });
  expect(stored).toEqual([60_000, 60_000]);
});

test('an input without files is returned as it is', async () => {
  const { blobs } = countingStore();
  const input: InputItem[] = [{ type: 'user.tool_response', threadId: 'main', toolCallId: 'c1', content: 'yes' }];
  expect(await storeInput(input, { blobs, sessionId: 'ses_1' })).toBe(input);
});
