import { beforeEach, expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import { BlobNotFound, BlobsUnavailable, type BlobStore } from '../blobs/blob-store.ts';
import { offload } from '../blobs/offload.ts';
import { EncryptionKeyMissing } from '../encryption/cipher.ts';
import type { LogEntry } from '../core/records/log.ts';
import { sectionsOf } from '../core/sections.ts';
import { OnceLog } from '../lib/once-log.ts';
import { LOST_TEXT, restoreEntries, restoreRecord } from './restore-records.ts';

const sessionId = 'ses_1';
const AT = '2026-01-01T00:00:00.000Z';
const long = 'x'.repeat(2_000);

/** A store that accepts blobs, and whose reads end with `failure`. */
function storeThat(failure: Error): BlobStore {
  const store: Pick<BlobStore, 'put' | 'get'> = {
    put: () => Promise.resolve('f'.repeat(64)),
    get: () => Promise.reject(failure),
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the functions that are called
  return store as BlobStore;
}

const logged: unknown[] = [];
beforeEach(() => void logged.splice(0));

function source(blobs: BlobStore) {
  const losses = new OnceLog({ warn: (fields: unknown) => void logged.push(fields) });
  return { blobs, losses, sessionId, turnId: 'turn_1' };
}

const lossy = storeThat(new BlobNotFound(sessionId, 'f'));

async function withoutTexts<T>(record: T): Promise<T> {
  const stored = await offload(record, { blobs: lossy, sessionId, inlineBytes: 0 });
  return restoreRecord(stored, { ...source(lossy), recordId: 'evt_1' });
}

test('a text that is lost is replaced in its record by one that says so; the other records are whole', async () => {
  const record = { kind: 'tool.response' as const, id: 'e', at: AT, threadId: 'main', toolCallId: 'c' };
  const entries: LogEntry[] = [
    { ordinal: 1, record: { ...record, outcome: 'succeeded', content: 'short' } },
    { ordinal: 2, record: { ...record, outcome: 'succeeded', content: long } },
  ];
  const stored = await offload(entries, { blobs: lossy, sessionId, inlineBytes: 0 });
  const [first, second] = await restoreEntries(stored, source(lossy));
  expect(first).toEqual(entries[0]);
  expect(second).toEqual({ ordinal: 2, record: { ...entries[1]?.record, content: LOST_TEXT } });
  expect(logged).toEqual([{ sessionId, turnId: 'turn_1', recordId: 'e' }]);
});

test('the log has a record once that has lost several texts, and is read again', async () => {
  const entry: LogEntry = {
    ordinal: 3,
    record: modelMessage({ id: 'msg_1', content: long, reasoning: `${long}!`, toolCalls: [] }),
  };
  const stored = await offload([entry], { blobs: lossy, sessionId, inlineBytes: 0 });
  const from = source(lossy);
  for (let i = 0; i < 2; i++) await restoreEntries(stored, from);
  expect(logged).toEqual([{ sessionId, turnId: 'turn_1', recordId: 'msg_1' }]);
});

test('a text whose key is not configured is not replaced: it is there', async () => {
  const stored = await offload({ content: long }, { blobs: lossy, sessionId, inlineBytes: 0 });
  const from = source(storeThat(new EncryptionKeyMissing('k1')));
  await expect(restoreRecord(stored, { ...from, recordId: 'evt_1' })).rejects.toThrow(EncryptionKeyMissing);
  expect(logged).toEqual([]);
});

test('a text that is JSON is replaced by JSON of the same form, so that its readers understand it', async () => {
  const call = { id: 'c', name: 'n', arguments: long, info: { type: 'system' as const, name: 'n' } };
  const message = modelMessage({ sections: long, toolCalls: [{ ...call, route: { to: 'answered' } }] });
  const lost = await withoutTexts(message);
  expect(sectionsOf(lost)).toEqual([]);
  expect(JSON.parse(lost.toolCalls[0]?.arguments ?? '')).toEqual({ lost: LOST_TEXT });
  const asked = await withoutTexts({ calls: [{ elicitation: { question: long, state: { blob: 'f' } } }] });
  expect(JSON.parse(asked.calls[0]?.elicitation.question ?? '')).toMatchObject({ mode: 'form', message: LOST_TEXT });
  expect(JSON.parse((await withoutTexts({ kind: 'toolkit.refreshed', tools: long })).tools)).toEqual([]);
});

test('parts of a message that need a lost text are left out', async () => {
  const fields = { blocks: [{ signature: long }] };
  const call = { id: 'c', name: 'n', arguments: '{}', info: { type: 'system' as const, name: 'n' } };
  const message = modelMessage({
    content: long,
    structured: { fits: true },
    providerFields: fields,
    toolCalls: [
      { ...call, route: { to: 'answered' }, providerFields: fields },
      { ...call, route: { to: 'answered' }, providerFields: { kept: 'short' } },
    ],
  });
  const { structured: _, providerFields: __, ...rest } = message;
  const [damaged, whole] = message.toolCalls;
  const { providerFields: ___, ...calling } = damaged ?? {};
  expect(await withoutTexts(message)).toEqual({ ...rest, content: LOST_TEXT, toolCalls: [calling, whole] });
});

test('a record whose store is unavailable is not read at all: a later read gives all of it', async () => {
  const stored = await offload({ content: long }, { blobs: lossy, sessionId, inlineBytes: 0 });
  const blobs = storeThat(new BlobsUnavailable('away'));
  await expect(restoreRecord(stored, { ...source(blobs), recordId: 'evt_1' })).rejects.toThrow(BlobsUnavailable);
});
