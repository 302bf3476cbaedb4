import { expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import { BlobNotFound, BlobsUnavailable } from '../blobs/blob-store.ts';
import type { StoredFile } from '../core/records/input.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import { loadMedia } from './load-media.ts';

const sessionId = 'ses_1';
const file = (name: string, blob: string, more: object = {}): StoredFile => ({
  type: 'file',
  name,
  mimeType: 'image/png',
  bytes: 1,
  blob,
  ...more,
});
const small: StoredFile = { type: 'file', name: 'small', mimeType: 'image/png', bytes: 1, base64: 'AAAA' };
const kept = file('kept', 'kept');
const lost = file('lost', 'lost');
const speech = file('speech', 'lost', { mimeType: 'audio/wav', asAudio: true });
const text = file('text', 'unread', { mimeType: 'text/plain' });

function storeOf(failure: Error) {
  const reads: string[] = [];
  const get = (_session: string, blob: string) => {
    reads.push(blob);
    return blob === 'kept' ? Promise.resolve(Buffer.from('kept')) : Promise.reject(failure);
  };
  return { blobs: { get }, reads };
}

const transcript: TranscriptItem[] = [
  { role: 'user', content: [{ type: 'text', text: 'Look.' }, kept, lost, speech, small] },
  {
    role: 'assistant',
    message: modelMessage({ content: 'Drawn.', images: [{ file: lost }, { file: kept }] }),
  },
  { role: 'tool', toolCallId: 'c', name: 'photo', content: 'One.', files: [lost, kept, text] },
];

test('a conversation has a note in the place of each lost image and audio, and all the rest', async () => {
  const { blobs, reads } = storeOf(new BlobNotFound(sessionId, 'lost'));
  const losses: [name: string, index: number][] = [];
  const onLost = ({ name }: StoredFile, index: number) => void losses.push([name, index]);
  const media = await loadMedia(transcript, { blobs, sessionId, onLost });
  const note = (name: string) => `[${name} is lost: the blob store of the server no longer has it.]`;
  expect(media.transcript).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Look.' },
        kept,
        { type: 'text', text: note('lost') },
        { type: 'text', text: note('speech') },
        small,
      ],
    },
    { role: 'assistant', message: modelMessage({ content: 'Drawn.', images: [{ file: kept }] }) },
    { role: 'tool', toolCallId: 'c', name: 'photo', content: `One.\n${note('lost')}`, files: [kept, text] },
  ]);
  expect(losses).toEqual([
    ['lost', 0],
    ['speech', 0],
    ['lost', 1],
    ['lost', 2],
  ]);
  expect(await media.contentOf(kept)).toBe(Buffer.from('kept').toString('base64'));
  expect(await media.contentOf(small)).toBe('AAAA');
  expect(reads.toSorted(), 'each is read once, and texts are not read').toEqual(['kept', 'lost']);
});

test('an unavailable store is an error: the call is made when all of the conversation can be read', async () => {
  const { blobs } = storeOf(new BlobsUnavailable('away'));
  const onLost = () => undefined;
  await expect(loadMedia(transcript, { blobs, sessionId, onLost })).rejects.toThrow(BlobsUnavailable);
});
