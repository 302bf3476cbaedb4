import { expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import { recordsOfFailure, waitingAfterEnd, withOutputs } from './activity-ends.ts';
import { KERNEL } from './call-order.ts';
import type { ActivityResult, ScheduledActivity, ScheduledInput } from './history.ts';
import type { CallSource } from './records/calls.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { SubAgent, ThreadDone } from './records/threads.ts';
import type { WithoutId } from './records/base.ts';

const AT = '2026-11-28T08:00:00.000Z';
type Lost = Exclude<ActivityResult, { how: 'completed' }>;

const BASE = { turnId: 'turn_1', sessionId: 'ses_1', specHash: 'a', threadId: 'main' };
const PARENT = { threadId: 'main', toolCallId: 'sub' };
const REST = { title: 't', depth: 1, specHash: 'a', hasServers: true, iterations: 5 };
const AGENT: SubAgent = { threadId: 'thr_0', parent: PARENT, ...REST };
const QUESTION = { question: '{}', state: { blob: 'b' } };

type ToolActivity = Extract<ScheduledActivity, { name: 'callTool' }>;

function toolCall(run: CallSource['run'], more: Partial<ScheduledInput<'callTool'>> = {}): ToolActivity {
  const source = { turnId: 'turn_1', messageId: 'm', stamp: 's', index: 0, ...(run && { run }) };
  return { name: 'callTool', input: { ...BASE, toolCallId: 'c', source, ...more } };
}

const RETRY = { effect: 'retry' as const, callHash: 'h' };
const ONCE = { effect: 'once' as const, callHash: 'h' };

function modelCall(more: Partial<ScheduledInput<'callModel'>> = {}): ScheduledActivity & { name: 'callModel' } {
  const plan = { messageId: 'msg_1', createdAt: AT, upTo: 1, recent: [] };
  return { name: 'callModel', input: { ...BASE, ...plan, step: 1, ...more } };
}

const cancelled = (started: boolean): Lost => ({ how: 'cancelled', started });
const failed: Lost = { how: 'failed', message: 'no memory' };
const lost: Lost = { how: 'timed_out' };

test.each<[string, ToolActivity, Lost, string, string]>([
  ['a repeatable call is cancelled before it begins', toolCall(RETRY), cancelled(false), 'cancelled', 'was cancelled.'],
  ['another one is cancelled before it begins', toolCall(ONCE), cancelled(false), 'cancelled', 'was not executed'],
  ['a repeatable call is cancelled in progress', toolCall(RETRY), cancelled(true), 'failed', 'did not answer'],
  ['another one is cancelled in progress', toolCall(ONCE), cancelled(true), 'unknown_outcome', 'may or may not'],
  ['a repeatable call fails', toolCall(RETRY), failed, 'failed', 'did not answer'],
  ['another one is lost', toolCall(ONCE), lost, 'unknown_outcome', 'may or may not'],
  ['a call without a server is lost', toolCall(undefined), lost, 'failed', 'did not answer'],
])('the response says what is known when %s', (_, activity, end, outcome, content) => {
  const [record, ...others] = recordsOfFailure(activity, end, AT, undefined);
  expect(others).toEqual([]);
  expect(record).toMatchObject({ kind: 'tool.response', at: AT, threadId: 'main', toolCallId: 'c', outcome });
  expect(record).toHaveProperty('content', expect.stringContaining(content));
});

test('a call that continues with an answer, or runs again, has begun before: its outcome is unknown', () => {
  for (const more of [{ answered: { elicitation: QUESTION, content: '{}' } }, { repeats: true as const }]) {
    const outcomeOf = (run: CallSource['run']) =>
      recordsOfFailure(toolCall(run, more), cancelled(false), AT, undefined);
    expect(outcomeOf(ONCE)).toMatchObject([{ outcome: 'unknown_outcome' }]);
    expect(outcomeOf(RETRY)).toMatchObject([{ outcome: 'cancelled' }]);
  }
});

test('the response of a call in the sandbox says how its kernel was lost', () => {
  const cell = toolCall({ ...ONCE, inSandbox: true, order: { server: KERNEL } });
  expect(recordsOfFailure(cell, lost, AT, undefined)).toMatchObject([{ execution: { exit: 'lost' } }]);
  expect(recordsOfFailure(toolCall(ONCE), lost, AT, undefined)[0]).not.toHaveProperty('execution');
});

test('a model call without a result leaves an empty message, unless no model was called', () => {
  const message = { kind: 'model.message', id: 'msg_1', content: '' };
  expect(recordsOfFailure(modelCall(), failed, AT, undefined)).toMatchObject([{ ...message, finishReason: 'error' }]);
  const ended = recordsOfFailure(modelCall(), cancelled(true), AT, undefined);
  expect(ended).toMatchObject([{ ...message, finishReason: 'cancelled' }]);
  expect(recordsOfFailure(modelCall({ ends: 'denial' }), failed, AT, undefined)).toEqual([]);
});

test.each<[Lost, string, string]>([
  [failed, 'no memory', 'failed'],
  [lost, 'its model call was lost', 'failed'],
  [cancelled(true), 'its model call was lost', 'cancelled'],
])(
  'a sub-agent whose model call has no result (%o) ends with an error, and its call has a result',
  (end, message, outcome) => {
    const [, done, response] = recordsOfFailure(modelCall({ threadId: 'thr_0' }), end, AT, AGENT);
    expect(done).toMatchObject({ kind: 'thread.done', threadId: 'thr_0', end: { status: 'error', message } });
    expect(response).toMatchObject({
      kind: 'tool.response',
      ...PARENT,
      outcome,
      content: expect.stringContaining(message),
    });
  },
);

test('servers that could not be connected leave no record', () => {
  expect(recordsOfFailure({ name: 'connectTools', input: BASE }, failed, AT, undefined)).toEqual([]);
});

test('a person is asked about a lost call that may have run, but not if the turn has cancelled it', () => {
  const asks = toolCall(ONCE, { onUnknown: { policy: { quorum: 2, onExpiry: 'deny' } } });
  expect(waitingAfterEnd(asks, lost)).toMatchObject({ needs: 'response', policy: { quorum: 2 } });
  expect(waitingAfterEnd(asks, failed)).toMatchObject({ needs: 'response' });
  expect(waitingAfterEnd(asks, cancelled(true))).toBeUndefined();
  expect(waitingAfterEnd(toolCall(ONCE), lost)).toBeUndefined();
  expect(waitingAfterEnd(modelCall(), lost)).toBeUndefined();
});

test('a call that has returned waits for what its result names', () => {
  const end = { how: 'completed' as const, records: [] };
  expect(waitingAfterEnd(toolCall(ONCE), { ...end, elicitation: QUESTION })).toMatchObject({ elicitation: QUESTION });
  expect(waitingAfterEnd(toolCall(ONCE, { onUnknown: {} }), end)).toBeUndefined();
});

const done = (status: 'done' | 'error', more: Partial<ThreadDone> = {}): WithoutId<ThreadDone> => {
  const end = status === 'done' ? { status } : { status, message: 'no' };
  return { kind: 'thread.done', at: AT, threadId: 'thr_0', title: 't', parent: PARENT, end, ...more };
};

test('the end of a done thread has the message that is directly before it as its output', () => {
  const message = modelMessage({ threadId: 'thr_0', content: 'Found.' });
  expect(withOutputs([message, done('done')])).toEqual([message, { ...done('done'), output: message }]);
  const other = modelMessage({ content: 'Given.' });
  const unchanged: UnsequencedRecord[][] = [
    [message, done('error')],
    [done('done'), message],
    [message, done('done', { output: other })],
    [done('done'), done('done')],
    [message, other],
  ];
  for (const records of unchanged) expect(withOutputs(records)).toEqual(records);
});
