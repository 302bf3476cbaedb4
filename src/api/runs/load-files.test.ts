import { expect, test } from 'vitest';
import { modelMessage } from '../../../test/support/model-message.ts';
import { BlobNotFound, BlobsUnavailable } from '../../blobs/blob-store.ts';
import type { StoredFile } from '../../core/records/input.ts';
import type { LogRecord } from '../../core/records/log.ts';
import { loadFiles } from './load-files.ts';

const sessionId = 'ses_1';
const file = (blob: string, mimeType = 'image/png'): StoredFile => ({
  type: 'file',
  name: blob,
  mimeType,
  bytes: 4,
  blob,
});
const loaded = { type: 'file', name: 'kept', mimeType: 'image/png', bytes: 4, base64: 'a2VwdA==' };
const storeOf = (failure: Error) => ({
  get: (_session: string, blob: string) =>
    blob === 'kept' ? Promise.resolve(Buffer.from('kept')) : Promise.reject(failure),
});
const lossy = { blobs: storeOf(new BlobNotFound(sessionId, 'lost')), sessionId };

const response: LogRecord = {
  kind: 'tool.response',
  id: 'e',
  at: '2026-01-01T00:00:00.000Z',
  threadId: 'main',
  toolCallId: 'c',
  outcome: 'succeeded',
  content: 'Two.',
  files: [file('lost'), file('kept')],
};

test('a result with a lost file has a note on it, and the other files', async () => {
  expect(await loadFiles(response, lossy)).toEqual({
    ...response,
    content: 'Two.\n[lost is lost: the blob store of the server no longer has it.]',
    files: [loaded],
  });
});

test('a message has the images that are not lost, each with its fields, and the transcript of lost audio', async () => {
  const images = [{ file: file('lost') }, { file: file('kept'), providerFields: { n: 2 } }];
  const audio = { file: file('lost', 'audio/wav'), transcript: ' And said.' };
  const message = modelMessage({ content: 'Drawn.', images, audio });
  const { audio: _, ...silent } = message;
  expect(await loadFiles(message, lossy)).toEqual({
    ...silent,
    content: 'Drawn. And said.',
    images: [{ file: loaded, providerFields: { n: 2 } }],
  });
});

test('an unavailable store is an error', async () => {
  const blobs = storeOf(new BlobsUnavailable('away'));
  await expect(loadFiles(response, { blobs, sessionId })).rejects.toThrow(BlobsUnavailable);
});
