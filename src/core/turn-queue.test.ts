import { expect, test } from 'vitest';
import { turnStart } from '../../test/support/random-turn.ts';
import type { CreateTurnCommand, SessionTurnsState, Tip } from './session.ts';
import { afterQueue, insertQueued, isForQueue, MAX_QUEUED, nextInQueue, refuseQueued } from './turn-queue.ts';

const tip: Tip = { turnId: 'turn_r', previousTurnId: null, sequence: 4, pending: [] };
const waiting: Tip = {
  ...tip,
  pending: [
    {
      threadId: 'main',
      toolCallId: 'c',
      needs: 'sign_in',
      source: { turnId: 'turn_r', messageId: 'm', stamp: 's', index: 0 },
    },
  ],
};
const queue = [
  { turnId: 'turn_1', number: 3 },
  { turnId: 'turn_2', number: 5 },
];
const state = (given: Partial<SessionTurnsState>): SessionTurnsState => ({
  tip,
  open: true,
  closed: false,
  queue,
  newest: null,
  ...given,
});
// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the fields that decide
const command = (given: Partial<CreateTurnCommand>) =>
  ({ input: [{ type: 'user.message', content: 'x' }], onRunning: 'queue', ...given }) as CreateTurnCommand;

test('messages are queued while a turn runs or others wait; everything else goes ahead of the queue', () => {
  expect(isForQueue(command({}), state({ queue: [] }))).toBe(true);
  expect(isForQueue(command({}), state({ open: false }))).toBe(true);
  expect(isForQueue(command({}), state({ open: false, queue: [] }))).toBe(false);
  expect(isForQueue(command({ onRunning: 'reject' }), state({}))).toBe(false);
  expect(isForQueue(command({ input: [] }), state({}))).toBe(false);
  const answer = { type: 'user.tool_response' as const, threadId: 'main', toolCallId: 'c', content: 'x' };
  expect(isForQueue(command({ input: [answer] }), state({}))).toBe(false);
});

test('a queued turn follows the last one, or none; the queue is bounded', () => {
  const refuse = (previous: CreateTurnCommand['previous']) => refuseQueued({ previous }, state({}))?.code;
  expect(refuse({ turn: 'last' })).toBe(undefined);
  expect(refuse({ turn: 'none' })).toBe(undefined);
  expect(refuse({ turn: 'id', turnId: 'turn_r' })).toBe(undefined);
  expect(refuse({ turn: 'id', turnId: 'turn_2' })).toBe(undefined);
  expect(refuse({ turn: 'id', turnId: 'turn_0' })).toBe('turn_running');
  const full = Array.from({ length: MAX_QUEUED }, (_, n) => ({ turnId: `turn_${n}`, number: n }));
  expect(refuseQueued({ previous: { turn: 'last' } }, state({ queue: full }))?.code).toBe('queue_full');
});

test('the first of the queue begins once no turn runs and nothing waits on the last one', () => {
  expect(nextInQueue(state({}))).toBe(undefined);
  expect(nextInQueue(state({ open: false }))).toBe(queue[0]);
  expect(nextInQueue(state({ open: false, tip: null }))).toBe(queue[0]);
  expect(nextInQueue(state({ open: false, tip: waiting }))).toBe(undefined);
  const parent = { threadId: 'main', toolCallId: 'd' };
  const rest = { title: 'T', depth: 1, specHash: 'a1', hasServers: false, iterations: 1, steps: 1 };
  const threads = [{ threadId: 'thread_1', parent, ...rest }];
  expect(nextInQueue(state({ open: false, tip: { ...tip, threads } }))).toBe(undefined);
  expect(nextInQueue(state({ open: false, queue: [] }))).toBe(undefined);
});

test('a turn that is found again gets its place', () => {
  expect(insertQueued(queue, { turnId: 'turn_3', number: 4 }).map(({ number }) => number)).toEqual([3, 4, 5]);
  expect(insertQueued(queue, { turnId: 'turn_2', number: 5 })).toBe(queue);
});

test('a turn that has begun ends in its next run, which learns of a cancel; others end in the queue', () => {
  const start = turnStart({ sequence: 0, queued: { number: 3, position: 1 } });
  const begin = { sequence: 5, previousTurnId: 'turn_r' };
  const begun = { at: '2026-11-28T12:00:00.000Z', queuedRunId: 'run_1' };
  const { queued: _, ...rest } = start;
  expect(afterQueue(start, { begin, cancelled: undefined, ...begun })).toEqual({ next: { ...rest, ...begin, begun } });
  expect(afterQueue(start, { begin, cancelled: 'client-cancelled', ...begun })).toEqual({
    next: { ...rest, ...begin, begun: { ...begun, cancelled: 'client-cancelled' } },
  });
  expect(afterQueue(start, { begin: undefined, cancelled: 'client-cancelled', ...begun })).toEqual({
    end: { status: 'cancelled', reason: 'client-cancelled' },
  });
});
