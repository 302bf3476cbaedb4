import { expect, test } from 'vitest';
import type { PendingCall } from './records/pending.ts';
import {
  actionsRequired,
  clientResponse,
  denial,
  hasBeenAsked,
  hasNoResult,
  operationIdOf,
  outcomeText,
  responseText,
  unsuccessfulResponse,
} from './tool-records.ts';

const AT = '2026-11-28T12:00:00.000Z';
const call: PendingCall = {
  threadId: 'main',
  toolCallId: 'c',
  needs: 'approval',
  source: { turnId: 'turn_1', messageId: 'm', stamp: 's', index: 0 },
};

test('a denied call was not executed; to deny that a call runs again leaves its outcome unknown', () => {
  expect(denial(call, 'no', AT)).toMatchObject({ outcome: 'denied', content: 'no' });
  const lost: PendingCall = { ...call, needs: 'response', unknownOutcome: 'The server was lost.' };
  expect(denial(lost, 'no', AT)).toMatchObject({ outcome: 'unknown_outcome', content: 'The server was lost.' });
});

test('a call has no result of its tool if its outcome is unknown, unless its client has given that', () => {
  expect(hasNoResult({ outcome: 'unknown_outcome' })).toBe(true);
  expect(hasNoResult({ outcome: 'unknown_outcome', isGiven: true })).toBe(false);
  expect(hasNoResult({ outcome: 'failed', noResult: 'client' })).toBe(true);
  expect(hasNoResult({ outcome: 'failed' })).toBe(false);
});

test('answers are asked for by thread, all approvals before the other ones', () => {
  const given = ['response', 'approval', 'sign_in', 'approval'] as const;
  const pending = given.map((needs, n): PendingCall => ({ ...call, needs, toolCallId: `c${n}` }));
  const other: PendingCall = { ...call, threadId: 'thread_1' };
  const asked = actionsRequired([...pending, other], AT);
  expect(asked.map(({ kind, threadId, calls }) => [kind, threadId, calls.map(({ toolCallId }) => toolCallId)])).toEqual(
    [
      ['tool.approval_required', 'main', ['c1', 'c3']],
      ['tool.approval_required', 'thread_1', ['c']],
      ['tool.response_required', 'main', ['c0']],
    ],
  );
});

test('an operation id has the turn or the run, the thread of a sub-agent, and the call', () => {
  const key = { threadId: 'main', toolCallId: 'c' };
  expect(operationIdOf({ turnId: 'turn_1' }, key)).toBe('turn_1/c');
  expect(operationIdOf({ turnId: 'turn_1', isRun: true }, { ...key, threadId: 'thr_1' })).toBe('run_1/thr_1/c');
  expect(operationIdOf({ turnId: 'a_turn_1', isRun: true }, key)).toBe('a_turn_1/c');
});

test('each outcome without a text has one, which says whether the call was executed', () => {
  const outcomes = ['cancelled', 'expired', 'unknown_outcome', 'failed'] as const;
  const texts = outcomes.map((outcome) => outcomeText(outcome));
  expect(new Set(texts).size).toBe(outcomes.length);
  expect(texts.map((text) => text.includes('not executed'))).toEqual([true, true, false, false]);
  expect(responseText({ outcome: 'failed', content: 'why' })).toBe('why');
  expect(responseText({ outcome: 'denied', content: '' })).toBe('The user denied this tool call.');
  expect(responseText({ outcome: 'denied', content: 'no' })).toBe('The user denied this tool call. Reason: no');
});

test('a result without one of its tool has the arguments with which the call was to run, if a person has edited them', () => {
  const response = { kind: 'tool.response', at: AT, threadId: 'main', toolCallId: 'c', content: 'x' };
  const edited = { arguments: '{}', hash: 'h' };
  expect(unsuccessfulResponse(call, 'expired', AT, 'x')).toStrictEqual({ ...response, outcome: 'expired' });
  expect(unsuccessfulResponse({ ...call, edited }, 'failed', AT, 'x')).toStrictEqual({
    ...response,
    outcome: 'failed',
    arguments: '{}',
  });
  expect(clientResponse({ ...call, edited }, { content: 'x' }, { at: AT })).toStrictEqual({
    ...response,
    outcome: 'succeeded',
    arguments: '{}',
  });
});

test('the result of a client has its error and its hash, if it has them', () => {
  const response = { kind: 'tool.response', at: AT, threadId: 'main', toolCallId: 'c', content: 'x' };
  const error = 'TypeError: no';
  expect(clientResponse(call, { content: 'x', hash: 'h', isError: true }, { at: AT })).toStrictEqual({
    ...response,
    outcome: 'failed',
    answerHash: 'h',
  });
  expect(clientResponse(call, { content: 'x', error }, { at: AT })).toStrictEqual({
    ...response,
    outcome: 'failed',
    noResult: 'client',
    error,
  });
});

test('a call waits because of an attempt if that has raised its question, was lost, or found another connection', () => {
  const asked = [{}, { elicitation: {} as never }, { unknownOutcome: '' }, { isAskedAgain: true as const }];
  expect(asked.map(hasBeenAsked)).toEqual([false, true, true, true]);
});
