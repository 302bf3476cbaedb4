import { expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import { compactedBy, hasSummary } from './compacted.ts';
import { lostRecord } from './lost-record.ts';
import type { UnsequencedRecord } from './records/log.ts';

const AT = '2026-11-28T08:00:00.000Z';

const owner = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
const turn = { sessionId: 'ses_1', previousTurnId: null, specHash: 'a', isLast: false, createdAt: AT, owner };
const created = (turnId: string) => lostRecord({ ...turn, turnId, ordinal: 1, isRun: false });
const said = modelMessage();
const compacted = (through: number, summary?: string, threadId = 'main'): UnsequencedRecord => ({
  kind: 'context.compacted',
  at: AT,
  threadId,
  through,
  tokensBefore: 9,
  tokensAfter: 1,
  ...(summary !== undefined && { summary }),
});

test('a thread without compactions has all of its records', () => {
  const all = { from: 0, cleared: 0, summary: undefined, last: -1 };
  expect(compactedBy([], 'main')).toEqual(all);
  expect(compactedBy([created('turn_1'), said, compacted(2, 'Of another.', 'thr_0')], 'main')).toEqual(all);
});

test('a compaction counts from the beginning of its turn; one without a summary clears results only', () => {
  const records = [created('turn_1'), said, compacted(2, 'One.'), created('turn_2'), said, said, compacted(3), said];
  expect(compactedBy(records.slice(0, 3), 'main')).toEqual({ from: 2, cleared: 2, summary: 'One.', last: 2 });
  expect(compactedBy(records, 'main')).toEqual({ from: 2, cleared: 6, summary: 'One.', last: 6 });
  const again = [...records, compacted(4, 'Two.')];
  expect(compactedBy(again, 'main')).toEqual({ from: 7, cleared: 7, summary: 'Two.', last: 8 });
});

test('an empty summary replaces records, too', () => {
  expect(compactedBy([created('turn_1'), said, compacted(2, '')], 'main')).toMatchObject({ from: 2, summary: '' });
});

test('a turn has a summary of what came before only if a compaction of the thread has written one', () => {
  const records = [created('turn_1'), said, compacted(2), compacted(2, 'Of another.', 'thr_0')];
  expect(hasSummary(records, 'main')).toBe(false);
  expect(hasSummary(records, 'thr_0')).toBe(true);
  expect(hasSummary([...records, compacted(2, 'One.'), said], 'main')).toBe(true);
});
