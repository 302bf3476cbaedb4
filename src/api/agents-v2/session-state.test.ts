import { expect, test } from 'vitest';
import { emptyText } from '../../core/message.ts';
import type { LogRecord } from '../../core/records/log.ts';
import type { ResponseLimit, PauseReason, TurnOutcome } from '../../core/records/turn.ts';
import { TurnView } from '../../core/turn-view.ts';
import { messageOf } from '../../../test/support/random-turn.ts';
import { NO_ANSWER } from './turn-events.ts';
import { isFinal, stateOf } from './session-state.ts';

const STARTED = '2026-11-21T09:00:00.000Z';
const ENDED = '2026-11-21T09:01:00.000Z';
const NOW = Date.parse('2026-11-21T09:02:00.000Z');

const answered = done('17 and 23.');
/** The call of a turn that waits for its client. */
const call = { threadId: 'main', toolCallId: 'call_1', needs: 'response' };

function done(content: string): TurnOutcome {
  return { status: 'done', output: messageOf('msg_1', { ...emptyText(), content }, false), requiredActions: [] };
}

interface TurnShape {
  pauses?: PauseReason[];
  waiting?: typeof call;
  limit?: ResponseLimit;
}

function turn(end: TurnOutcome | undefined, { pauses = [], waiting, limit }: TurnShape = {}): TurnView {
  const view = new TurnView();
  const records = [
    { kind: 'turn.created', at: STARTED },
    { kind: 'model.message', threadId: 'main', toolCalls: [{ id: 'call_1' }] },
    ...(waiting ? [{ kind: 'tool.response_required', calls: [waiting] }] : []),
    ...pauses.map((reason) => ({ kind: 'turn.paused', reason })),
    ...(end ? [{ kind: 'turn.done', at: ENDED, end, limit }] : []),
  ];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  for (const record of records) view.add(record as LogRecord);
  return view;
}

type Request = NonNullable<Parameters<typeof stateOf>[0]['request']>;

const REQUEST: Request = {
  queue_number: null,
  first_turn_id: null,
  cancelled_at: null,
  start_error: null,
  start_failed_at: null,
  idle_timeout_s: null,
  // The catalog's row of the turn before.
  waits_until: '2026-11-20T09:00:00.000Z',
  idle_ends_at: null,
};

function state(turn: TurnView | undefined, more: Partial<Request> | 'none' = {}) {
  return stateOf({ request: more === 'none' ? undefined : { ...REQUEST, ...more }, turn, now: NOW });
}

const pausedFor = (...pauses: PauseReason[]) => ({ pauses });

test.each([
  ['pending', undefined, { first_turn_id: 'turn_1' }],
  ['queued', undefined, { first_turn_id: 'turn_1', queue_number: 1 }],
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
  ['idle', turn(answered), { idle_timeout_s: 61 }],
  ['completed', turn(answered), { idle_timeout_s: 60 }],
  // It is of another API.
  ['idle', turn(answered), 'none'],
  ['failed', turn({ status: 'error', message: 'no' }), { idle_timeout_s: 600 }],
  ['interrupted', turn({ status: 'cancelled', reason: 'client-cancelled' }), {}],
  ['timed_out', turn({ status: 'cancelled', reason: 'server-execution-timeout' }), {}],
  ['failed', turn({ status: 'cancelled', reason: 'abandoned' }), {}],
  ['completed', turn(answered, { limit: 'time' }), {}],
  ['timed_out', turn(done(''), { limit: 'time' }), { idle_timeout_s: 600 }],
  ['failed', turn(done(''), { limit: 'iterations' }), { idle_timeout_s: 600 }],
  ['pending', turn({ status: 'cancelled', reason: 'cancelled-for-next-turn' }), {}],
  ['queued', undefined, { queue_number: 1 }],
  ['interrupted', undefined, { cancelled_at: ENDED }],
  // It was cancelled before it began, and a message starts it.
  ['pending', undefined, { cancelled_at: ENDED, first_turn_id: 'turn_1' }],
  ['failed', undefined, { start_error: 'there is no such model', start_failed_at: ENDED }],
  ['interrupted', turn(answered), { cancelled_at: ENDED, idle_timeout_s: 600 }],
  // It is being cancelled: its end is not in the log yet.
  ['running', turn(undefined), { cancelled_at: ENDED }],
  // A message has started it again.
  ['idle', turn(answered), { cancelled_at: '2026-11-21T08:59:59.000Z', idle_timeout_s: 600 }],
] satisfies [string, TurnView | undefined, Partial<Request> | 'none'][])('a session is %s', (status, last, more) => {
  expect(state(last, more).status).toBe(status);
});

test('the state of an ended session has the time of its end, and the failure', () => {
  expect(state(turn(answered))).toMatchObject({ finishedAt: ENDED, error: null, errorCode: null });
  expect(state(turn(answered), { idle_timeout_s: 60 })).toMatchObject({ finishedAt: '2026-11-21T09:02:00.000Z' });
  expect(state(turn(answered), { idle_timeout_s: 61 })).toMatchObject({ finishedAt: null });
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
