import { beforeEach, expect, test } from 'vitest';
import type { HeadStart } from './speculative-calls.ts';
import type { InputItem } from '../core/records.ts';
import { TurnHeadStarts, type TurnHeadStart } from './turn-speculation.ts';

const INPUT: InputItem[] = [{ type: 'user.message', content: 'hi' }];
const BEGINNING = {
  turnId: 'turn_1',
  sessionId: 'ses_1',
  previousTurnId: null,
  after: null,
  sequence: 1,
  createdAt: '2026-01-01T12:00:00.000Z',
  createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
  owner: { subjectId: 'ann', draftRoles: null },
  specHash: 'x',
};

let offers: HeadStart[];
let withdrawn: string[];
let headStarts: TurnHeadStarts;
let headStart: TurnHeadStart;
beforeEach(() => {
  offers = [];
  withdrawn = [];
  const offer = (start: HeadStart) => void offers.push(start);
  headStarts = new TurnHeadStarts({ offer, withdraw: (turnId) => void withdrawn.push(turnId) });
  headStart = prepare();
});

function prepare(): TurnHeadStart {
  const prepared = headStarts.prepare('ann/ses_1');
  if (!prepared) throw new Error('another request is on its way');
  prepared.foresee(BEGINNING);
  return prepared;
}

test('is given once, and not taken back when the session has accepted the turn', () => {
  headStart.give(INPUT);
  headStart.give(INPUT);
  expect(offers).toEqual([{ ...BEGINNING, input: INPUT }]);
  headStart.close();
  headStart.withdraw();
  expect(withdrawn).toEqual([]);
});

test('is taken back once if there is no turn', () => {
  headStart.give(INPUT);
  headStart.withdraw();
  headStart.withdraw();
  expect(withdrawn).toEqual(['turn_1']);
});

test.each(['close', 'withdraw'] as const)('is not given after %s', (end) => {
  headStart[end]();
  headStart.give(INPUT);
  expect(offers).toEqual([]);
  expect(withdrawn).toEqual([]);
});

test('is not given to what answers calls', () => {
  headStart.give([{ type: 'user.tool_response', threadId: 'main', toolCallId: 'c1', content: 'yes' }]);
  expect(offers).toEqual([]);
});

test.each(['close', 'withdraw'] as const)('belongs to one request of a scope at a time, until %s', (end) => {
  expect(headStarts.prepare('ann/ses_1')).toBeUndefined();
  expect(headStarts.prepare('ann/ses_2')).toBeDefined();
  headStart[end]();
  prepare();
  headStart[end]();
  expect(headStarts.prepare('ann/ses_1')).toBeUndefined();
});

test('is not given to a turn of which nothing could be foreseen', () => {
  headStarts.prepare('ann/ses_2')?.give(INPUT);
  expect(offers).toEqual([]);
});

test.each(['claimed', 'close', 'withdraw'] as const)('lets the others of its scope claim after %s', async (end) => {
  await headStarts.othersClaimed('ann/ses_2');
  let isOver = false;
  const others = headStarts.othersClaimed('ann/ses_1').then(() => (isOver = true));
  await new Promise((resolve) => void setImmediate(resolve));
  expect(isOver).toBe(false);
  headStart[end]();
  await others;
  await headStarts.othersClaimed('ann/ses_1');
});
