import { expect, test } from 'vitest';
import { messageWith } from '../../test/support/model-message.ts';
import { endOfSubAgent, refusalOf } from './end-sub-agent.ts';

const thread = { threadId: 'thread_1', title: 'read', parent: { threadId: 'main', toolCallId: 'call_9' }, depth: 1 };
const subAgent = { ...thread, specHash: 'a1', hasServers: false, iterations: 5 };
const message = messageWith({ to: 'server', effect: 'retry', approval: false, callHash: 'h' });
const answered = { status: 'answered' } as const;

test('the last model call that a sub-agent may make runs no calls, and ends its thread', () => {
  const last = { subAgent, isLast: true } as const;
  expect(refusalOf(last)).toContain('the sub-agent has ended');
  expect(endOfSubAgent(last, [message], answered)).toMatchObject([
    { kind: 'thread.done', end: { status: 'error', message: 'it reached its limit of 5 model calls' } },
    { kind: 'tool.response', ...subAgent.parent, outcome: 'failed' },
  ]);
});

test('an earlier call of a sub-agent runs its calls, as does the last one of the root agent', () => {
  for (const call of [{ subAgent }, { isLast: true }] as const) {
    expect(refusalOf(call)).toBeUndefined();
    expect(endOfSubAgent(call, [message], answered)).toEqual([]);
  }
});
