import { expect, test } from 'vitest';
import { LOST_RECORD, lostRecord } from './lost-record.ts';

const damaged = {
  turnId: 'turn_1',
  sessionId: 'ses_1',
  previousTurnId: 'turn_0',
  specHash: 'a',
  ordinal: 3,
  isLast: false,
  createdAt: '2026-11-28T08:00:00.000Z',
  owner: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
  isRun: false,
};

test('a lost beginning of a turn has its position in the session, and says whether the turn is a run', () => {
  const { turnId, sessionId, previousTurnId, specHash, owner, createdAt } = damaged;
  const turn = { turnId, sessionId, previousTurnId, specHash, createdBy: owner, at: createdAt };
  const input = [{ type: 'user.message', content: LOST_RECORD }];
  const created = lostRecord({ ...damaged, ordinal: 1 });
  expect(created).toEqual({ kind: 'turn.created', id: created.id, ...turn, input, isLost: true });
  expect(lostRecord({ ...damaged, ordinal: 1, isRun: true })).toEqual({ ...created, isRun: true });
});

test('a lost end of a turn is an error without a usage', () => {
  const end = { status: 'error', message: LOST_RECORD };
  expect(lostRecord({ ...damaged, isLast: true })).toMatchObject({ kind: 'turn.done', end, modelCalls: 0 });
});

test('any other lost record is a message of the root agent', () => {
  expect(lostRecord(damaged)).toMatchObject({
    kind: 'model.message',
    threadId: 'main',
    content: LOST_RECORD,
    toolCalls: [],
    isLost: true,
  });
});
