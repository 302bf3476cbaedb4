import { expect, test } from 'vitest';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import { endOfSubAgent, endWith, lastSaid, refusalOf } from './end-sub-agent.ts';

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

test('a sub-agent whose last message has no text answers with its last text before', () => {
  const silent = modelMessage();
  const answerOf = (said?: ReturnType<typeof modelMessage>) => endOfSubAgent({ subAgent }, [silent], answered, said)[1];
  expect(answerOf(modelMessage({ content: 'Found it.' }))).toMatchObject({
    content: 'Found it.',
    outcome: 'succeeded',
  });
  expect(answerOf()).toMatchObject({ content: 'The sub-agent ended without an answer.' });
});

test('the last text of a thread is that of its last message with a text', () => {
  const say = (id: string, content: string, threadId = 'thread_1') => modelMessage({ id, content, threadId });
  expect(lastSaid([say('a', 'x'), say('b', ''), say('c', 'y', 'main')], 'thread_1')?.id).toBe('a');
  expect(lastSaid([say('a', ''), say('b', '')], 'thread_1')?.id).toBe('b');
  expect(lastSaid([say('c', 'y', 'main')], 'thread_1')).toBeUndefined();
});

test.each([
  ['max_turns', 'it reached its limit of 5 model calls.'],
  ['denial', 'a call of it was denied.'],
] as const)('a sub-agent that ends with what it has said is done, and the result says why: %s', (ends, why) => {
  const said = modelMessage({ content: 'So far.' });
  expect(endWith(said, { ends, subAgent })).toMatchObject([
    { kind: 'thread.done', end: { status: 'done' }, output: said },
    { outcome: 'succeeded', content: `So far.\n[everturn] The sub-agent has not finished: ${why}` },
  ]);
});
