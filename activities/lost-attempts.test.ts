import { ActivityCancellationDetails } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import {
  CONVERSATION,
  conversationsWithCall,
  MODEL_CALL,
  modelDependencies,
  toolCallInput,
} from '../test/support/activity-inputs.ts';
import type { CallModelInput } from '../src/core/history.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';

/** More attempts than any activity may lose. */
const MAX_ATTEMPTS = 12;

/** An external service that never answers, and ends when it is aborted. */
class SilentService {
  asked = 0;
  onAsked: () => void = () => undefined;

  async ask(signal: AbortSignal): Promise<void> {
    this.asked += 1;
    this.onAsked();
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  }
}

/**
 * Retries an activity as Temporal does if each of its workers is lost during its work. Returns the last attempt's
 * result.
 */
async function untilEnded<T>(activity: () => Promise<T>, work: SilentService): Promise<T> {
  let heartbeatDetails: unknown;
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const env = new MockActivityEnvironment({ attempt, heartbeatDetails });
    let isLost = false;
    env.on('heartbeat', (details) => {
      if (!isLost) heartbeatDetails = details;
    });
    const asked = new Promise<undefined>((resolve) => (work.onAsked = () => resolve(undefined)));
    const ended = env.run<[], T, () => Promise<T>>(activity);
    const result = await Promise.race([ended.then((value) => ({ value })), asked]);
    if (result) return result.value;
    isLost = true;
    env.cancel('TIMED_OUT', new ActivityCancellationDetails({ timedOut: true }));
    await ended.catch(() => undefined);
  }
  throw new Error(`it is retried for ever: ${work.asked} times so far`);
}

test('a repeatable tool that crashes its worker on each attempt ends with an unknown outcome', async () => {
  const tool = new SilentService();
  const callTool = createCallTool(
    activityDependencies({
      conversations: conversationsWithCall('look'),
      toolKinds: {
        mcp: {
          run: async (_call: unknown, { signal }: { signal: AbortSignal }) => {
            await tool.ask(signal);
            return { status: 'unknown', message: 'it was lost' };
          },
        },
      },
    }),
  );
  const input = toolCallInput('retry');
  const { records } = await untilEnded(() => callTool(input), tool);
  expect(records).toMatchObject([{ kind: 'tool.response', outcome: 'unknown_outcome' }]);
  expect(tool.asked).toBe(5);
});

test('a model call that crashes its worker on each attempt ends in error, and its usage counts each attempt', async () => {
  const model = new SilentService();
  const callModel = createCallModel(
    activityDependencies(
      modelDependencies(async function* (_request, signal) {
        await model.ask(signal);
        yield* [];
      }),
    ),
  );
  const input = { ...MODEL_CALL, step: 1 };
  const { records, outcome } = await untilEnded(() => callModel(input), model);
  expect(outcome).toMatchObject({ status: 'error', message: expect.stringContaining('5 attempts') });
  expect(records).toMatchObject([{ kind: 'model.message', finishReason: 'error', usage: { unreportedAttempts: 5 } }]);
  expect(model.asked).toBe(5);
});

test('a model call of a sub-agent whose conversation crashes each worker ends its thread, without reading it again', async () => {
  const blobs = new SilentService();
  const parent = { threadId: 'main', toolCallId: 'call_0' };
  const agent = { threadId: 'thread_1', title: 'read', parent, depth: 1, specHash: 'a1', hasServers: false };
  const subAgent = { ...agent, iterations: 5 };
  const dependencies = activityDependencies({
    ...modelDependencies(async function* () {
      yield* await Promise.resolve([]);
    }),
    conversations: {
      ...CONVERSATION,
      call: async (input: CallModelInput) => ({ ...(await CONVERSATION.call(input)), subAgent }),
      load: (_call: unknown, _runId: string, signal: AbortSignal) => blobs.ask(signal),
    },
  });
  const input = { ...MODEL_CALL, threadId: agent.threadId };
  const { records } = await untilEnded(() => createCallModel(dependencies)(input), blobs);
  expect(records).toMatchObject([
    { kind: 'model.message', finishReason: 'error' },
    { kind: 'thread.done', threadId: agent.threadId, title: 'read', end: { status: 'error' } },
    { kind: 'tool.response', ...parent, outcome: 'failed' },
  ]);
  expect(blobs.asked).toBe(5);
});
