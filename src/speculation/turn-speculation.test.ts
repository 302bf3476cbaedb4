import { beforeEach, expect, test } from 'vitest';
import type { SpeculativeCall } from './speculative-calls.ts';
import type { InputItem } from '../core/records.ts';
import { TurnSpeculations, type TurnSpeculation } from './turn-speculation.ts';

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

let offers: SpeculativeCall[];
let withdrawn: string[];
let speculativeCalls: TurnSpeculations;
let speculativeCall: TurnSpeculation;
beforeEach(() => {
  offers = [];
  withdrawn = [];
  const offer = (start: SpeculativeCall) => void offers.push(start);
  speculativeCalls = new TurnSpeculations({ offer, withdraw: (turnId) => void withdrawn.push(turnId) });
  speculativeCall = prepare();
});

function prepare(): TurnSpeculation {
  const prepared = speculativeCalls.prepare('ann/ses_1');
  if (!prepared) throw new Error('another request is on its way');
  prepared.foresee(BEGINNING);
  return prepared;
}

test('is given once, and not taken back when the session has accepted the turn', () => {
  speculativeCall.give(INPUT);
  speculativeCall.give(INPUT);
  expect(offers).toEqual([{ ...BEGINNING, input: INPUT }]);
  speculativeCall.close();
  speculativeCall.withdraw();
  expect(withdrawn).toEqual([]);
});

test('is taken back once if there is no turn', () => {
  speculativeCall.give(INPUT);
  speculativeCall.withdraw();
  speculativeCall.withdraw();
  expect(withdrawn).toEqual(['turn_1']);
});

test.each(['close', 'withdraw'] as const)('is not given after %s', (end) => {
  speculativeCall[end]();
  speculativeCall.give(INPUT);
  expect(offers).toEqual([]);
  expect(withdrawn).toEqual([]);
});

test('is not given to what answers calls', () => {
  speculativeCall.give([{ type: 'user.tool_response', threadId: 'main', toolCallId: 'c1', content: 'yes' }]);
  expect(offers).toEqual([]);
});

test.each(['close', 'withdraw'] as const)('belongs to one request of a scope at a time, until %s', (end) => {
  expect(speculativeCalls.prepare('ann/ses_1')).toBeUndefined();
  expect(speculativeCalls.prepare('ann/ses_2')).toBeDefined();
  speculativeCall[end]();
  prepare();
  speculativeCall[end]();
  expect(speculativeCalls.prepare('ann/ses_1')).toBeUndefined();
});

test('is not given to a turn of which nothing could be foreseen', () => {
  speculativeCalls.prepare('ann/ses_2')?.give(INPUT);
  expect(offers).toEqual([]);
});

test.each(['claimed', 'close', 'withdraw'] as const)('lets the others of its scope claim after %s', async (end) => {
  await speculativeCalls.othersClaimed('ann/ses_2');
  let isOver = false;
  const others = speculativeCalls.othersClaimed('ann/ses_1').then(() => (isOver = true));
  await new Promise((resolve) => void setImmediate(resolve));
  expect(isOver).toBe(false);
  speculativeCall[end]();
  await others;
  await speculativeCalls.othersClaimed('ann/ses_1');
});
