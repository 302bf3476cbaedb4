import { expect, test } from 'vitest';
import type { LogEntry } from '../core/records/log.ts';
import { endedTurns } from './ended-turn.ts';

/** A third of the room in the cache. */
const THIRD = 64 * 1024 * 1024 * 0.3;

function entryWith(characters: number): LogEntry {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- its size is all that counts
  return { ordinal: 1, record: { text: 'x'.repeat(characters) } as unknown as LogEntry['record'] };
}

test('ended turns stay in memory up to a size, with their texts that are stored elsewhere', () => {
  const place = { sessionId: 'ses_1', previousTurnId: null, sequence: 1 };
  const turns = endedTurns();
  const add = (turnId: string, stored: LogEntry, restored?: LogEntry): void =>
    void turns.set(turnId, { ...place, turnId, entries: [stored], ...(restored && { restored: [restored] }) });
  const large = entryWith(THIRD);
  // A text that is in its record counts once.
  add('one', large, large);
  add('two', entryWith(THIRD));
  add('three', entryWith(10), entryWith(THIRD));
  expect([...turns.keys()].toSorted()).toEqual(['one', 'three', 'two']);
  add('four', entryWith(10), entryWith(THIRD));
  expect([...turns.keys()].toSorted()).toEqual(['four', 'three', 'two']);
});
