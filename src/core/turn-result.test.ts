import { expect, test } from 'vitest';
import { TURN_ID } from '../../test/support/random-turn.ts';
import type { ApprovalPolicy } from './records/calls.ts';
import type { PendingCall } from './records/pending.ts';
import type { OpenThread } from './records/threads.ts';
import type { CancelReason } from './records/turn.ts';
import { turnResult, type ThreadResult } from './turn-result.ts';

const policy: ApprovalPolicy = { quorum: 1, onExpiry: 'deny', excludeRequester: true };
const call: PendingCall = {
  threadId: 'main',
  toolCallId: 'a',
  needs: 'approval',
  source: { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0 },
  policy,
  requesters: ['ann'],
};
const thread: OpenThread = {
  threadId: 'thread_1',
  title: 'T',
  parent: { threadId: 'main', toolCallId: 'b' },
  depth: 1,
  specHash: 'a1',
  hasServers: false,
  iterations: 1,
  steps: 1,
};
const waiting: ThreadResult = { status: 'waiting', pending: [call], threads: [] };
const error: ThreadResult = { status: 'error', message: 'The model failed.', code: 'model_failed' };
const cancelled = { status: 'cancelled', reason: 'client-cancelled' };

test.each<[string, ThreadResult, CancelReason | undefined, object]>([
  ['is done', { status: 'done' }, undefined, { status: 'done', pending: [] }],
  ['was done when it was cancelled', { status: 'done' }, 'client-cancelled', { status: 'done', pending: [] }],
  ['waits', waiting, undefined, { status: 'done', pending: [call] }],
  ['had ended on its calls when it was cancelled', waiting, 'client-cancelled', { status: 'done', pending: [call] }],
  [
    'waits with its sub-agents',
    { ...waiting, threads: [thread] },
    undefined,
    { status: 'done', pending: [call], threads: [thread] },
  ],
  ['was stopped', { status: 'stopped' }, 'client-cancelled', cancelled],
  ['failed while it was cancelled', error, 'client-cancelled', cancelled],
  ['was to continue when it was cancelled', { ...waiting, status: 'continue' }, 'client-cancelled', cancelled],
  ['failed', error, undefined, error],
  ['stopped without a reason', { status: 'stopped' }, undefined, { status: 'error', message: expect.any(String) }],
])('the result of a turn that %s', (_, end, reason, result) => {
  expect(turnResult(end, reason, [])).toEqual(result);
});

test('authors of messages to a turn have asked for the calls on which it ends, if their policy excludes them', () => {
  const free: PendingCall = { ...call, toolCallId: 'c', policy: { quorum: 1, onExpiry: 'deny' } };
  const result = turnResult({ ...waiting, pending: [call, free] }, undefined, ['bob', 'ann']);
  expect(result).toMatchObject({
    pending: [
      { toolCallId: 'a', requesters: ['ann', 'bob'] },
      { toolCallId: 'c', requesters: ['ann'] },
    ],
  });
});
