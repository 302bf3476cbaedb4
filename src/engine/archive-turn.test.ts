import { expect, test } from 'vitest';
import { TURN_ID } from '../../test/support/random-turn.ts';
import type { LogEntry } from '../core/records/log.ts';
import type { TurnOutcome } from '../core/records/turn.ts';
import { NO_USAGE } from '../core/records/usage.ts';
import { archive } from './archive-turn.ts';

const AT = '2026-11-28T20:00:00.000Z';

/** Archives the log of a turn with this end; `isArchived`: another worker has added the end meanwhile. */
async function archived(end: TurnOutcome, { isArchived = false } = {}): Promise<object[]> {
  const entries = [
    { ordinal: 1, record: { kind: 'turn.done', at: AT, id: TURN_ID, end, usage: NO_USAGE } },
  ] as unknown as LogEntry[];
  const lines: object[] = [];
  const sources = {
    catalog: {
      turns: {
        get: () => Promise.resolve({ id: TURN_ID, sequence: 1, archived_through: 0 }),
        unarchivedBefore: () => Promise.resolve([]),
      },
      sessions: { get: () => Promise.resolve({ agent_name: 'orders' }) },
      archive: { add: () => Promise.resolve(isArchived ? [] : entries) },
    },
    logs: {
      async *readStored() {
        yield await Promise.resolve({ sessionId: 'ses_1', entries });
      },
    },
    metrics: { archived: () => undefined },
    logReading: { ofEntries: () => Promise.resolve({}) },
    log: { warn: (fields: object, message: string) => void lines.push({ ...fields, message_of_line: message }) },
  };
  await archive({ ...sources, turnId: TURN_ID, signal: new AbortController().signal } as never);
  return lines;
}

const FAILED = { status: 'error', code: 'model_failed', message: 'own/m answered 401: bad key' } as const;

test('a turn that ends in error has one line, with its session, agent, code and message', async () => {
  expect(await archived(FAILED)).toEqual([
    {
      turnId: TURN_ID,
      sessionId: 'ses_1',
      agent: 'orders',
      code: FAILED.code,
      message: FAILED.message,
      message_of_line: 'a turn ended in error',
    },
  ]);
});

test('none if another worker has archived the end, which has the line, nor for another end', async () => {
  expect(await archived(FAILED, { isArchived: true })).toEqual([]);
  expect(await archived({ status: 'cancelled', reason: 'abandoned' })).toEqual([]);
});
