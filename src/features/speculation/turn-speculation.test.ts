import { beforeEach, expect, test } from 'vitest';
import type { InputItem } from '../../core/records/input.ts';
import type { TurnAccepted } from '../../core/session.ts';
import type { SpeculativeCall } from '../../engine/speculation.ts';
import { TurnSpeculator, type TurnSpeculation } from './turn-speculation.ts';

const INPUT: InputItem[] = [{ type: 'user.message', content: 'hi' }];
const EXPECTED = {
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

const ACCEPTED = { turnId: 'turn_1', previousTurnId: null, sequence: 1 };

let offers: SpeculativeCall[];
let accepted: TurnAccepted[];
let withdrawn: string[];
let speculator: TurnSpeculator;
let speculation: TurnSpeculation;
beforeEach(() => {
  offers = [];
  accepted = [];
  withdrawn = [];
  speculator = new TurnSpeculator({
    isServed: true,
    offer: (start) => void offers.push(start),
    accept: (turn) => void accepted.push(turn),
    withdraw: (turnId) => void withdrawn.push(turnId),
  });
  speculation = reserve();
});

function reserve(): TurnSpeculation {
  const reserved = speculator.reserve('ann/ses_1');
  if (!reserved) throw new Error('another request has the reservation');
  reserved.expect(EXPECTED);
  return reserved;
}

test('is offered once, and not withdrawn after the session has accepted the turn', () => {
  speculation.offer(INPUT);
  speculation.offer(INPUT);
  expect(offers).toEqual([{ ...EXPECTED, input: INPUT }]);
  expect(accepted).toEqual([]);
  speculation.accepted(ACCEPTED);
  speculation.withdraw();
  expect(accepted).toEqual([ACCEPTED]);
  expect(withdrawn).toEqual([]);
});

test('is withdrawn once if there is no turn', () => {
  speculation.offer(INPUT);
  speculation.withdraw();
  speculation.withdraw();
  expect(withdrawn).toEqual(['turn_1']);
});

test.each(['accepted', 'withdraw'] as const)('is not offered after %s', (end) => {
  speculation[end](ACCEPTED);
  speculation.offer(INPUT);
  expect(offers).toEqual([]);
  expect(accepted).toEqual([]);
  expect(withdrawn).toEqual([]);
});

test('is not offered for an input that answers calls', () => {
  speculation.offer([{ type: 'user.tool_response', threadId: 'main', toolCallId: 'c1', content: 'yes' }]);
  expect(offers).toEqual([]);
});

test.each(['accepted', 'withdraw'] as const)('is reserved by one request of a scope at a time, until %s', (end) => {
  expect(speculator.reserve('ann/ses_1')).toBeUndefined();
  expect(speculator.reserve('ann/ses_2')).toBeDefined();
  speculation[end](ACCEPTED);
  reserve();
  speculation[end](ACCEPTED);
  expect(speculator.reserve('ann/ses_1')).toBeUndefined();
});

test('is not reserved in a process without a worker', () => {
  const none = { isServed: false, offer: () => undefined, accept: () => undefined, withdraw: () => undefined };
  expect(new TurnSpeculator(none).reserve('ann/ses_1')).toBeUndefined();
});

test('is not offered without an expected turn', () => {
  speculator.reserve('ann/ses_2')?.offer(INPUT);
  expect(offers).toEqual([]);
});

test.each(['claimed', 'accepted', 'withdraw'] as const)(
  'lets the other requests of its scope claim after %s',
  async (end) => {
    await speculator.whenClaimed('ann/ses_2');
    let isSettled = false;
    const others = speculator.whenClaimed('ann/ses_1').then(() => (isSettled = true));
    await new Promise((resolve) => void setImmediate(resolve));
    expect(isSettled).toBe(false);
    speculation[end](ACCEPTED);
    await others;
    await speculator.whenClaimed('ann/ses_1');
  },
);
