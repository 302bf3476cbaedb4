import { expect, test } from 'vitest';
import type { FileText, StoredFile } from '../../core/records/input.ts';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import { jsonBytes } from '../../core/text.ts';
import { transcript } from '../../core/transcript.ts';
import { extractionKey } from './file-kind.ts';
import { NEVER_ABORTED } from '../../lib/abort.ts';
import { readTexts } from './read-files.ts';

const at = '2026-01-01T00:00:00.000Z';

const fileOf = (name: string, mimeType = 'text/plain'): StoredFile => ({
  type: 'file',
  name,
  mimeType,
  bytes: name.length,
  base64: Buffer.from(name).toString('base64'),
});

const sent = (content: StoredFile[]): UnsequencedRecord => ({
  kind: 'turn.created',
  at,
  turnId: 'turn_1',
  sessionId: 'ses_1',
  previousTurnId: null,
  createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
  input: [{ type: 'user.message', content }],
  specHash: 'hash',
});

/** Reads files whose texts are `text`, and counts the extractions. */
async function read(records: UnsequencedRecord[], { text = '', large = true } = {}) {
  const asked: string[] = [];
  const result = await readTexts(transcript(records, 'main'), {
    spec: { model: { name: 'm' }, config: { context_management: { large_tool_response: { enabled: large } } } },
    files: {
      extract: ({ file }) => {
        asked.push(file.name);
        return Promise.resolve({ file: extractionKey(file), blob: 'b' });
      },
      image: ({ mimeType }) => Promise.resolve(mimeType === 'image/png' ? { mimeType } : { problem: 'no image' }),
      beginning: (_file, _session, extracted) =>
        Promise.resolve(extracted && 'problem' in extracted ? extracted : { text, characters: text.length }),
      whole: () => Promise.resolve({ text, characters: text.length }),
    },
    sessionId: 'ses_1',
    records,
    signal: NEVER_ABORTED,
  });
  const texts = result.conversation.flatMap((item) =>
    item.role === 'user' ? item.content.map((part) => (part.type === 'text' ? part.text : part.mimeType)) : [],
  );
  return { ...result, asked, texts };
}

test('the files of a message share a bound, and the notes say how to read the rest', async () => {
  const one = await read([sent([fileOf('a')])], { text: 'é'.repeat(100_000) });
  expect(one.texts[0]).toMatch(/read_tool_response reads and searches it: file file_\w{8}\]$/);
  expect([one.isCut, Math.round(jsonBytes(one.texts[0] ?? '') / 1024)]).toEqual([true, 64]);
  const many = await read([sent(Array.from({ length: 100 }, (_, i) => fileOf(`${i}`)))], { text: 'x'.repeat(50_000) });
  expect(jsonBytes(many.texts.join(''))).toBeLessThan(170 * 1024);
  const alone = await read([sent([fileOf('a')])], { text: 'x'.repeat(400_000), large: false });
  expect(alone.texts[0]).toMatch(/is left out here\]$/);
  expect([alone.isCut, Math.round(jsonBytes(alone.texts[0] ?? '') / 1024)]).toEqual([false, 255]);
});

test('each document is extracted once, up to a limit, and not if a message has its text', async () => {
  const pdf = (name: string) => fileOf(name, 'application/pdf');
  // The same bytes as another type.
  const zip = fileOf('new', 'application/zip');
  const known: FileText = { file: extractionKey(pdf('known')), problem: 'it is damaged' };
  const message: UnsequencedRecord = {
    kind: 'model.message',
    id: 'msg_1',
    at,
    threadId: 'main',
    content: 'ok',
    refusal: '',
    reasoning: '',
    toolCalls: [],
    finishReason: 'stop',
    fileTexts: [known],
  };
  const few = await read([
    sent([pdf('known')]),
    message,
    sent([pdf('new'), pdf('new'), zip, fileOf('a', 'image/png')]),
  ]);
  expect([few.asked, few.extracted]).toEqual([
    ['new', 'new'],
    [pdf('new'), zip].map((file) => ({ file: extractionKey(file), blob: 'b' })),
  ]);
  expect([few.texts[0], few.texts.at(-1)]).toEqual([expect.stringContaining('it is damaged'), 'image/png']);
  const many = await read([sent(Array.from({ length: 60 }, (_, i) => pdf(`${i}`)))]);
  expect(many.asked).toHaveLength(50);
  expect(many.texts.slice(49, 51)).toEqual([
    expect.not.stringContaining('cannot be read'),
    expect.stringContaining('only the first 50 documents and archives'),
  ]);
});

test('a file is loaded by its id if the conversation has it', async () => {
  const { loadFile, texts } = await read([sent([fileOf('a'), fileOf('b', 'image/png')])], { text: 'x'.repeat(70_000) });
  const [, id = ''] = /file (file_\w+)\]$/.exec(texts[0] ?? '') ?? [];
  expect(await loadFile(id)).toMatchObject({ characters: 70_000 });
  expect([loadFile('file_00000000'), loadFile('file_')]).toEqual([undefined, undefined]);
});
