import { ActivityCancellationDetails } from '@temporalio/common';
import { defaultActivityInfo, MockActivityEnvironment } from '@temporalio/testing';
import { expect, test } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { turnStart, TURN_ID } from '../test/support/random-turn.ts';
import type { CallModelInput, CallToolInput } from '../src/core/history.ts';
import { turnCreated } from '../src/core/projection.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';

const AT = '2026-11-21T08:00:00.000Z';
const place = {
  owner: { subjectId: 'ann', draftRoles: null },
  turnId: TURN_ID,
  sessionId: 'ses_1',
  threadId: 'main',
  specHash: 'a1',
  runId: defaultActivityInfo.workflowExecution?.runId ?? '',
  deadline: Infinity,
};

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
  const call = { id: 'call_0', name: 'look', arguments: '{}', info: { type: 'mcp', serverId: 's', name: 'look' } };
  const callTool = createCallTool(
    activityDependencies({
      conversations: {
        toolCall: () => Promise.resolve({ ...call, route: { to: 'server' } }),
        remember: () => undefined,
      },
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
  const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0 };
  const input: CallToolInput = {
    ...place,
    toolCallId: 'call_0',
    source: { ...source, run: { effect: 'retry', callHash: 'h' } },
  };
  const { records } = await untilEnded(() => callTool(input), tool);
  expect(records).toMatchObject([{ kind: 'tool.response', outcome: 'unknown_outcome' }]);
  expect(tool.asked).toBe(5);
});

test('a model call that crashes its worker on each attempt ends in error, and its usage counts each attempt', async () => {
  const model = new SilentService();
  const start = turnStart();
  const callModel = createCallModel(
    activityDependencies({
      conversations: { load: () => Promise.resolve([turnCreated(start)]), remember: () => undefined },
      toolsets: { load: () => Promise.resolve({ tools: new Map(), servers: [], unavailable: [] }) },
      models: {
        resolve: () => ({
          model: 'm',
          provider: {
            async *stream(_request: unknown, signal: AbortSignal) {
              await model.ask(signal);
              yield* [];
            },
          },
        }),
      },
      speculativeCalls: {
        claim: () => Promise.resolve(undefined),
        claimElsewhere: () => Promise.resolve(undefined),
        forgo: () => undefined,
      },
    }),
  );
  const input: CallModelInput = {
    ...place,
    previousTurnId: null,
    sequence: 1,
    messageId: 'msg_0',
    createdAt: AT,
    step: 1,
    upTo: 1,
    recent: [],
    // Only the first attempt looks for it, and is lost.
    isBegun: true,
  };
  const { records, outcome } = await untilEnded(() => callModel(input), model);
  expect(outcome).toMatchObject({ status: 'error', message: expect.stringContaining('5 attempts') });
  expect(records).toMatchObject([{ kind: 'model.message', finishReason: 'error', usage: { unreportedAttempts: 5 } }]);
  expect(model.asked).toBe(5);
});
