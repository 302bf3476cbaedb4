import { expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import type { CancelReason, PauseReason, TurnOutcome } from './records/turn.ts';
import { isOpenTurnState, openTurnState, stateAfter, type OpenTurnState, type SessionState } from './session-state.ts';

test.for<[pauses: PauseReason[], asksClient: boolean, OpenTurnState]>([
  [[], false, 'running'],
  [[], true, 'asking'],
  [['action'], true, 'waiting_client'],
  [['action'], false, 'waiting_person'],
  [['sign_in'], false, 'waiting_person'],
  [['sign_in'], true, 'waiting_client'],
  [['delegation'], false, 'delegating'],
  [['delegation'], true, 'asking'],
  [['requested'], true, 'paused'],
  [['action', 'requested'], false, 'paused'],
  [['budget'], false, 'paused'],
])('a turn that is paused for %j, and asks its client: %s, is %s', ([pauses, asksClient, state]) => {
  expect(openTurnState(new Set(pauses), asksClient)).toBe(state);
  expect(isOpenTurnState(state)).toBe(true);
});

const message = modelMessage();
const done = (more: object): TurnOutcome =>
  Object.assign({ status: 'done' as const, output: message, requiredActions: [] }, more);
const asks = (kind: string, call: object) => ({ requiredActions: [{ kind, calls: [call] }], output: null });
const cancelled = (reason: CancelReason): TurnOutcome => ({ status: 'cancelled', reason });

test.for<[name: string, end: TurnOutcome, limit: 'time' | undefined, SessionState]>([
  ['an answer', done({ output: { ...message, content: 'Hi.' } }), undefined, 'idle'],
  ['a refusal', done({ output: { ...message, refusal: 'No.' } }), undefined, 'idle'],
  ['an answer at its time limit', done({ output: { ...message, content: 'Hi.' } }), 'time', 'idle'],
  ['nothing', done({}), undefined, 'unanswered'],
  ['nothing at its time limit', done({}), 'time', 'timed_out'],
  ['a call of the client', done(asks('tool.response_required', { needs: 'response' })), undefined, 'waiting_client'],
  ['an approval', done(asks('tool.approval_required', { needs: 'approval' })), undefined, 'waiting_person'],
  [
    'a question of a server',
    done(asks('tool.response_required', { needs: 'response', elicitation: {} })),
    undefined,
    'waiting_person',
  ],
  ['a sign-in', done(asks('mcp.auth_required', {})), undefined, 'waiting_person'],
  ['an error', { status: 'error', message: 'Down.' }, undefined, 'error'],
  ['a cancel', cancelled('client-cancelled'), undefined, 'cancelled'],
  ['a next turn', cancelled('cancelled-for-next-turn'), undefined, 'pending'],
  ['the time limit of the server', cancelled('server-execution-timeout'), undefined, 'timed_out'],
  ['a server that gives it up', cancelled('abandoned'), undefined, 'abandoned'],
])('a turn that ends with %s', ([, end, limit, state]) => {
  expect(stateAfter({ end, ...(limit && { limit }) })).toBe(state);
});

test.each(['queued', 'pending', 'idle', 'ended', null, undefined])(
  '%s is no state of a turn that has begun',
  (state) => {
    expect(isOpenTurnState(state)).toBe(false);
  },
);
