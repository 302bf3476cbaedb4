import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test, vi } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { conversationsWithCall, toolCallInput } from '../test/support/activity-inputs.ts';
import type { Appended, CallToolInput, CallToolResult } from '../src/core/history.ts';
import { createCallTool } from './call-tool.ts';

/** More files than a record can hold, for any current bound. */
const files = Array.from({ length: 1_000 }, () => ({
  type: 'file' as const,
  name: 'x'.repeat(200),
  mimeType: 'image/png',
  bytes: 1,
  base64: 'AA==',
}));

vi.mock(import('../src/tools/results.ts'), () => ({
  resultOf: () => {
    const file = { name: 'image', mimeType: 'image/png', base64: 'AAAA' };
    return { outcome: 'succeeded', text: 'Here they are.', files: Array.from({ length: 1_000 }, () => file) };
  },
  storeResponse: ({ threadId, toolCallId }, { outcome, text: content, files: stored = [] }) => {
    const response = { kind: 'tool.response' as const, at: '', threadId, toolCallId, outcome, content };
    return Promise.resolve({ ...response, ...(stored.length > 0 && { files }) });
  },
}));

test.each(['once', 'retry'] as const)(
  'a result with more files than can be stored is reduced to its text, and the call of the tool (%s) succeeds',
  async (effect) => {
    const callTool = createCallTool(
      activityDependencies({
        conversations: conversationsWithCall('look'),
        toolKinds: { mcp: { run: () => Promise.resolve({ status: 'result', content: [], isError: false }) } },
      }),
    );
    const env = new MockActivityEnvironment();
    const { records } = await env.run<[CallToolInput], Appended, typeof callTool>(callTool, toolCallInput(effect));
    expect(records).toMatchObject([{ kind: 'tool.response', outcome: 'succeeded' }]);
    const [record] = records;
    if (record?.kind !== 'tool.response') throw new Error('no response');
    expect(record.content).toContain('Here they are.');
    expect(record.content).toContain('the 1000 files of this result were left out');
    expect(record.files).toBeUndefined();
  },
);

const question = JSON.stringify({ mode: 'form', message: '?', requestedSchema: { type: 'object' } });
const answered = {
  elicitation: { question, state: { blob: 'f'.repeat(64) } },
  content: JSON.stringify({ action: 'decline' }),
};

const begunByHost = {
  ...toolCallInput('once').source,
  run: { effect: 'once' as const, callHash: '', hasBegun: true as const },
};

test.each<[string, Partial<CallToolInput>, { attempt?: number }, 'failed' | 'unknown_outcome']>([
  ['its first run', {}, {}, 'failed'],
  ['another attempt', {}, { attempt: 2 }, 'unknown_outcome'],
  ['a call that continues with an answer', { answered }, {}, 'unknown_outcome'],
  ['a call that a person has run again', { repeats: true }, {}, 'unknown_outcome'],
  ['a call that a kernel host has begun', { source: begunByHost }, {}, 'unknown_outcome'],
])('a call that does not arrive was not executed if that was its first run: %s', async (_, more, info, outcome) => {
  const rounds = JSON.stringify({ by: 'connection', id: 'gone', answered: [] });
  const callTool = createCallTool(
    activityDependencies({
      conversations: conversationsWithCall('pay'),
      blobs: { get: () => Promise.resolve(Buffer.from(rounds)) },
      toolKinds: { mcp: { run: () => Promise.resolve({ status: 'not_sent', message: 'refused' }) } },
    }),
  );
  const env = new MockActivityEnvironment(info);
  const input = { ...toolCallInput('once'), ...more };
  const { records } = await env.run<[CallToolInput], Appended, typeof callTool>(callTool, input);
  expect(records).toMatchObject([{ kind: 'tool.response', toolCallId: 'call_0', outcome }]);
});

test('an attempt that finds its connection replaced is asked about again only if no earlier one may have taken effect', async () => {
  const callTool = createCallTool(
    activityDependencies({
      conversations: { ...conversationsWithCall('pay'), reliedOn: () => Promise.resolve(new Set(['gone'])) },
      toolKinds: { mcp: { run: () => Promise.resolve({ status: 'replaced' }) } },
    }),
  );
  const input = { ...toolCallInput('retry'), onReplaced: {} };
  const attempt = (info: { attempt: number }) =>
    new MockActivityEnvironment(info).run<[CallToolInput], CallToolResult, typeof callTool>(callTool, input);
  expect(await attempt({ attempt: 1 })).toMatchObject({ records: [], isReplaced: true });
  const repeated = await attempt({ attempt: 2 });
  expect(repeated).toMatchObject({ records: [{ kind: 'tool.response', outcome: 'unknown_outcome' }] });
  expect(repeated).not.toHaveProperty('isReplaced');
});

test('a log that cannot be read is not reported as a server that cannot be reached', async () => {
  const run = vi.fn();
  const callTool = createCallTool(
    activityDependencies({
      conversations: {
        ...conversationsWithCall('pay'),
        reliedOn: () => Promise.reject(new Error('turn_1 is not of session ses_1')),
      },
      toolKinds: { mcp: { run } },
    }),
  );
  const input = { ...toolCallInput('once'), onReplaced: {} };
  const { records } = await new MockActivityEnvironment().run<[CallToolInput], Appended, typeof callTool>(
    callTool,
    input,
  );
  expect(records).toMatchObject([{ content: 'The tool call was not executed: turn_1 is not of session ses_1' }]);
  expect(run).not.toHaveBeenCalled();
});

test('a task that a client has given to another agent starts with the rights of a draft of the client', async () => {
  const owners: unknown[] = [];
  const route = { to: 'session', sessionId: 'ses_2', callHash: 'h', draftRoles: ['user'] };
  const info = { type: 'system', name: 'delegate' };
  const callTool = createCallTool(
    activityDependencies({
      conversations: {
        toolCall: () => Promise.resolve({ id: 'call_0', name: 'delegate', arguments: '{}', info, route }),
        remember: () => undefined,
      },
      delegator: {
        start: ({ owner }: CallToolInput) => {
          owners.push(owner);
          return Promise.resolve(undefined);
        },
      },
    }),
  );
  const result = await new MockActivityEnvironment().run<[CallToolInput], object, typeof callTool>(
    callTool,
    toolCallInput('retry'),
  );
  expect(result).toMatchObject({ isDelegated: true });
  expect(owners).toEqual([{ subjectId: 'ann', draftRoles: ['user'] }]);
});

test.each([
  [1, 1],
  [2, 0],
])('the next model call begins with the result of attempt %d: %d times', async (attempt, times) => {
  const dependencies = activityDependencies({
    conversations: conversationsWithCall('look'),
    toolKinds: { mcp: { run: () => Promise.resolve({ status: 'result', content: [], isError: false }) } },
  });
  const toolEnded = vi.spyOn(dependencies.stepsAhead, 'toolEnded');
  const callTool = createCallTool(dependencies);
  const env = new MockActivityEnvironment({ attempt });
  await env.run<[CallToolInput], Appended, typeof callTool>(callTool, toolCallInput('retry'));
  expect(toolEnded).toHaveBeenCalledTimes(times);
});
