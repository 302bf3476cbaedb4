import { expect, test } from 'vitest';
import { emptyText } from '../../core/message.ts';
import type { PauseReason, TurnOutcome } from '../../core/records.ts';
import { messageOf } from '../../../test/support/random-turn.ts';
import { NO_ANSWER } from './turn-events.ts';
import { isFinal, stateOf, type LastTurn, type StateOptions } from './session-state.ts';

const STARTED = '2026-11-21T09:00:00.000Z';
const ENDED = '2026-11-21T09:01:00.000Z';
const NOW = Date.parse('2026-11-21T09:02:00.000Z');

const answered = done('17 and 23.');
const call = new Map([['main call_1', { tool_name: 'lookup', args: {}, id: 'call_1' }]]);

function done(content: string): TurnOutcome {
  return { status: 'done', output: messageOf('msg_1', { ...emptyText(), content }, false), requiredActions: [] };
}

function turn(end: TurnOutcome | undefined, more: Partial<LastTurn> = {}): LastTurn {
  return { startedAt: STARTED, end, endedAt: end && ENDED, waiting: new Map(), pauses: new Set(), ...more };
}

function state(last: LastTurn | undefined, more: Partial<StateOptions> = {}) {
  const none = {
    idleTimeout: null,
    isStarting: false,
    isQueued: false,
    rejected: undefined,
    cancelledAt: undefined,
    now: NOW,
  };
  return stateOf({ last, ...none, ...more });
}

const pausedFor = (...reasons: PauseReason[]) => ({ pauses: new Set(reasons) });

test.each([
  ['pending', undefined, { isStarting: true }],
  ['queued', undefined, { isStarting: true, isQueued: true }],
  ['idle', undefined, {}],
  ['running', turn(undefined), {}],
  ['paused', turn(undefined, pausedFor('requested')), {}],
  ['paused', turn(undefined, pausedFor('budget')), {}],
  // An approval, or a sign-in: no result of a tool continues it.
  ['paused', turn(undefined, pausedFor('action')), {}],
  ['paused', turn(undefined, pausedFor('sign_in')), {}],
  ['awaiting_tool_results', turn(undefined, { waiting: call }), {}],
  ['awaiting_tool_results', turn(undefined, { waiting: call, ...pausedFor('action') }), {}],
  ['paused', turn(undefined, { waiting: call, ...pausedFor('action', 'requested') }), {}],
  ['completed', turn(answered), {}],
  ['idle', turn(answered), { idleTimeout: 61 }],
  ['completed', turn(answered), { idleTimeout: 60 }],
  ['idle', turn(answered), { idleTimeout: Infinity }],
  ['failed', turn({ status: 'error', message: 'no' }), { idleTimeout: 600 }],
  ['interrupted', turn({ status: 'cancelled', reason: 'client-cancelled' }), {}],
  ['timed_out', turn({ status: 'cancelled', reason: 'server-execution-timeout' }), {}],
  ['failed', turn({ status: 'cancelled', reason: 'abandoned' }), {}],
  ['completed', turn(answered, { limit: 'time' }), {}],
  ['timed_out', turn(done(''), { limit: 'time' }), { idleTimeout: 600 }],
  ['failed', turn(done(''), { limit: 'iterations' }), { idleTimeout: 600 }],
  ['pending', turn({ status: 'cancelled', reason: 'cancelled-for-next-turn' }), {}],
  ['queued', undefined, { isQueued: true }],
  ['interrupted', undefined, { cancelledAt: ENDED }],
  // It was cancelled before it began, and a message starts it.
  ['pending', undefined, { cancelledAt: ENDED, isStarting: true }],
  ['failed', undefined, { rejected: { error: 'there is no such model', at: ENDED } }],
  ['interrupted', turn(answered), { cancelledAt: ENDED, idleTimeout: 600 }],
  // It is being cancelled: its end is not in the log yet.
  ['running', turn(undefined), { cancelledAt: ENDED }],
  // A message has started it again.
  ['idle', turn(answered), { cancelledAt: '2026-11-21T08:59:59.000Z', idleTimeout: 600 }],
] satisfies [string, LastTurn | undefined, Partial<StateOptions>][])('a session is %s', (status, last, more) => {
  expect(state(last, more).status).toBe(status);
});

test('the state of an ended session says when, and what has failed', () => {
  expect(state(turn(answered))).toMatchObject({ finishedAt: ENDED, error: null, errorCode: null });
  expect(state(turn(answered), { idleTimeout: 60 })).toMatchObject({ finishedAt: '2026-11-21T09:02:00.000Z' });
  expect(state(turn(answered), { idleTimeout: 61 })).toMatchObject({ finishedAt: null });
  expect(state(turn(done('')))).toMatchObject({ errorCode: 'no_answer', error: NO_ANSWER, finishedAt: ENDED });
  expect(state(turn({ status: 'error', message: 'no', code: 'answer_misfit' }))).toMatchObject({
    errorCode: 'answer_validation',
  });
  expect(state(turn({ status: 'error', message: 'The model is away.' }))).toMatchObject({
    error: 'The model is away.',
    errorCode: 'internal',
    finishedAt: ENDED,
  });
});

test('only the last four states are final', () => {
  expect((['queued', 'pending', 'running', 'paused', 'idle', 'awaiting_tool_results'] as const).some(isFinal)).toBe(
    false,
  );
  expect((['completed', 'failed', 'timed_out', 'interrupted'] as const).every(isFinal)).toBe(true);
});
