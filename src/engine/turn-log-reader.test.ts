import type { Logger } from 'pino';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { turnStart, TURN_ID } from '../../test/support/random-turn.ts';
import { BlobNotFound, BlobsUnavailable, type BlobStore } from '../blobs/blob-store.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { HistoryEvent } from '../core/history.ts';
import type { ModelMessage } from '../core/records/message.ts';
import { EncryptionKeyMissing } from '../encryption/cipher.ts';
import type { TurnHistory } from '../temporal/history.ts';
import { LOST_TEXT } from './restore-records.ts';
import { ignoreUnreadable, TurnLogReader, TurnNotFound, unlessUnreadable } from './turn-log-reader.ts';
import { isUnavailable } from './unavailable.ts';
import { OnceLog } from '../lib/once-log.ts';

const losses = new OnceLog({ warn: () => undefined });

const AT = '2026-11-22T08:00:00.000Z';

interface Situation {
  /** Reads that do not find the turn. */
  startsAfter?: number;
  /** Whether the turn is a pending child of its session. */
  isPending?: () => boolean;
  row?: object;
  /** Blobs that are lost. */
  isLossy?: boolean;
}

/** A reader of the log of one turn, which has ended with these messages and is not archived. */
function logsOf(messages: string[], { startsAfter = 0, isPending = () => false, row, isLossy }: Situation = {}) {
  const events: HistoryEvent[] = [{ type: 'started', at: AT, start: turnStart() }];
  for (const [i, content] of messages.entries()) {
    const id = `msg_${i}`;
    const input = { ...turnStart(), threadId: 'main', messageId: id, upTo: i + 1, step: i, recent: [] };
    events.push({ type: 'scheduled', eventId: i, at: AT, activity: { name: 'callModel', input } });
    const rest = { refusal: '', reasoning: '', toolCalls: [], finishReason: 'stop' as const };
    const message: ModelMessage = { kind: 'model.message', id, at: AT, threadId: 'main', content, ...rest };
    events.push({ type: 'ended', scheduledEventId: i, at: AT, end: { how: 'completed', records: [message] } });
  }
  events.push({ type: 'closed', at: AT, close: { how: 'completed', result: { status: 'done', pending: [] } } });
  const counted = { reads: 0, blobs: 0 };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
  const history = {
    async *read() {
      counted.reads += 1;
      // The error of Temporal for a workflow that does not exist.
      if (counted.reads <= startsAfter)
        throw Object.assign(new Error('not found'), { code: 5, details: '', metadata: {} });
      yield Promise.resolve({ events, lastEventId: events.length });
    },
    isStarting: () => Promise.resolve(isPending()),
  } as unknown as TurnHistory;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  const catalog = { turns: { get: () => Promise.resolve(row) } } as unknown as KernelCatalog;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  const blobs = {
    get: () => {
      counted.blobs += 1;
      if (isLossy) return Promise.reject(new BlobNotFound('ses_1', 'f'));
      return Promise.resolve(Buffer.from('x'.repeat(100_000)));
    },
  } as unknown as BlobStore;
  return { logs: new TurnLogReader({ catalog, history, blobs, losses }), counted };
}

test.each([
  ['with many small entries', Array<string>(1_000).fill('short'), 1],
  ['with few large entries', Array<string>(20).fill('x'.repeat(100_000)), 2],
])('the log of an ended turn %s is cached depending on its size', async (_, messages, reads) => {
  const { logs, counted } = logsOf(messages);
  const entries = await logs.all(TURN_ID);
  expect(entries.length).toBe(messages.length + 2);
  expect(await logs.all(TURN_ID)).toEqual(entries);
  expect(counted.reads).toBe(reads);
});

test('a log that is followed from its second entry on is cached as a whole', async () => {
  const { logs, counted } = logsOf(['one', 'two']);
  const followed = await logs.all(TURN_ID, { from: 2 });
  expect(followed.map(({ ordinal }) => ordinal)).toEqual([2, 3, 4]);
  expect((await logs.all(TURN_ID)).map(({ ordinal }) => ordinal)).toEqual([1, 2, 3, 4]);
  expect(counted.reads).toBe(1);
});

test('the large texts of a log are restored in small batches, not for a hundred entries at once', async () => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the stored form of an offloaded text
  const reference = { $blob: '0'.repeat(64) } as unknown as string;
  const { logs, counted } = logsOf(Array.from({ length: 100 }, () => reference));
  const ordinals: number[] = [];
  for await (const entries of logs.read(TURN_ID)) {
    ordinals.push(...entries.map(({ ordinal }) => ordinal));
    expect(counted.blobs).toBeLessThanOrEqual(ordinals.length + 1);
    expect(entries.length).toBeLessThanOrEqual(20);
  }
  expect(ordinals).toEqual(Array.from({ length: 102 }, (_, i) => i + 1));
});

test('a log with a lost text is read: its record has a note instead', async () => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the stored form of an offloaded text
  const reference = { $blob: '0'.repeat(64) } as unknown as string;
  const { logs } = logsOf(['one', reference, 'three'], { isLossy: true });
  const contents = (await logs.all(TURN_ID)).flatMap(({ record }) =>
    record.kind === 'model.message' ? [record.content] : [],
  );
  expect(contents).toEqual(['one', LOST_TEXT, 'three']);
});

/** A log with one readable entry. */
async function* damagedLog(failure: Error): AsyncGenerator<number> {
  yield await Promise.resolve(1);
  throw failure;
}

describe('of several turns', () => {
  const damaged = new Error('damaged');
  const notFound = new TurnNotFound(TURN_ID);
  const turnOf = () => {
    const error = vi.fn();
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the function that is called
    return { turn: { turnId: TURN_ID, log: { error } as unknown as Logger }, error };
  };
  const all = (failure: Error, { turn }: ReturnType<typeof turnOf>) =>
    Array.fromAsync(ignoreUnreadable(damagedLog(failure), turn));

  test.each([
    [notFound, 0],
    [damaged, 1],
  ])('one that cannot be read is left out (%s), which is logged unless it was deleted', async (failure, logged) => {
    const { turn, error } = turnOf();
    expect(await unlessUnreadable(Promise.reject(failure), turn)).toBeUndefined();
    expect(error).toHaveBeenCalledTimes(logged);
    expect(await all(failure, { turn, error })).toEqual([1]);
    expect(await unlessUnreadable(Promise.resolve('read'), turn)).toBe('read');
  });

  test.each([
    ['in an outage', new BlobsUnavailable('away')],
    ['without its key, which can be configured again', new EncryptionKeyMissing('k1')],
  ])('none is left out %s', async (_when, away) => {
    const one = turnOf();
    await expect(unlessUnreadable(Promise.reject(away), one.turn)).rejects.toBe(away);
    await expect(all(away, one)).rejects.toBe(away);
  });
});

test('a turn that this process has just accepted is read as soon as it has started', async () => {
  const { logs, counted } = logsOf(['hello'], { startsAfter: 2 });
  logs.accepted(TURN_ID);
  expect((await logs.all(TURN_ID)).length).toBe(3);
  expect(counted.reads).toBe(3);
});

describe('a turn that another process has accepted, or this one long ago', () => {
  const row = { session_id: 'ses_1', archived: 0, archived_through: 0, created_at: '2026-01-01T00:00:00.000Z' };

  test('is read as soon as it has started', async () => {
    const { logs, counted } = logsOf(['hello'], { row, startsAfter: 3, isPending: () => counted.reads < 3 });
    expect((await logs.all(TURN_ID)).length).toBe(3);
    expect(counted.reads).toBe(4);
  });

  test('is not found if its session does not start it', async () => {
    const { logs, counted } = logsOf(['hello'], { row, startsAfter: Infinity });
    await expect(logs.all(TURN_ID)).rejects.toThrow(TurnNotFound);
    expect(counted.reads).toBe(2);
  });

  test('is not found if no session has it', async () => {
    const { logs } = logsOf(['hello'], { startsAfter: Infinity, isPending: () => true });
    await expect(logs.all(TURN_ID)).rejects.toThrow(TurnNotFound);
  });

  test('is unavailable while its start is overdue', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    onTestFinished(() => void vi.useRealTimers());
    const { logs } = logsOf(['hello'], {
      row,
      startsAfter: Infinity,
      isPending: () => {
        vi.advanceTimersByTime(3_000);
        return true;
      },
    });
    const error = await logs.all(TURN_ID).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'unavailable', message: expect.stringContaining('has not started yet') });
    expect(isUnavailable(error)).toBe(true);
  });
});

test('the texts of an ended turn are read once for conversations, also if its log was read before without them', async () => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the stored form of an offloaded text
  const reference = { $blob: '0'.repeat(64) } as unknown as string;
  const { logs, counted } = logsOf(Array.from({ length: 30 }, () => reference));
  await Array.fromAsync(logs.readStored(TURN_ID));
  expect(counted).toEqual({ reads: 1, blobs: 0 });
  const never = new AbortController().signal;
  const entries = await logs.ended(TURN_ID, never);
  expect(entries[30]?.record).toMatchObject({ content: 'x'.repeat(100_000) });
  expect(await logs.ended(TURN_ID, never)).toEqual(entries);
  // Those of the messages, and that of the output in the last entry.
  expect(counted).toEqual({ reads: 1, blobs: 31 });
});

test('a reader that is slower than a conversation does not replace the texts that the conversation has read', async () => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the stored form of an offloaded text
  const reference = { $blob: '0'.repeat(64) } as unknown as string;
  const { logs, counted } = logsOf([reference]);
  const slow = logs.readStored(TURN_ID);
  await slow.next();
  const never = new AbortController().signal;
  await logs.ended(TURN_ID, never);
  await Array.fromAsync(slow);
  const { blobs } = counted;
  await logs.ended(TURN_ID, never);
  expect(counted.blobs).toBe(blobs);
});
