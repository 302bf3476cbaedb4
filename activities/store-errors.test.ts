import { defaultActivityInfo, MockActivityEnvironment } from '@temporalio/testing';
import { expect, test, vi } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { turnStart, TURN_ID } from '../test/support/random-turn.ts';
import type { CallModelInput, CallToolInput } from '../src/core/history.ts';
import { turnCreated } from '../src/core/projection.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';

/** A store that fails by an error of its own: it is not unavailable for a moment. */
const put = () => Promise.reject(new TypeError('not a function'));

/** Too large for the history. */
const text = 'x'.repeat(200_000);

const place = {
  owner: { subjectId: 'ann', draftRoles: null },
  turnId: TURN_ID,
  sessionId: 'ses_1',
  threadId: 'main',
  specHash: 'a1',
  runId: defaultActivityInfo.workflowExecution?.runId ?? '',
  deadline: Infinity,
};

/** Temporal retries an activity that may be repeated, unless it fails like this. */
const notStored = { nonRetryable: true, message: 'the result could not be stored: not a function' };

test('a result that cannot be stored fails its call: the tool is not called again', async () => {
  const run = vi.fn(() => Promise.resolve({ status: 'result', content: [{ type: 'text', text }], isError: false }));
  const call = { id: 'call_0', name: 'look', arguments: '{}', info: { type: 'mcp', serverId: 's', name: 'look' } };
  const callTool = createCallTool(
    activityDependencies({
      blobs: { put },
      conversations: {
        toolCall: () => Promise.resolve({ ...call, route: { to: 'server' } }),
        remember: () => undefined,
      },
      toolKinds: { mcp: { run } },
    }),
  );
  const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0 };
  const input: CallToolInput = {
    ...place,
    toolCallId: 'call_0',
    source: { ...source, run: { effect: 'retry', callHash: 'h' } },
  };
  await expect(new MockActivityEnvironment().run(() => callTool(input))).rejects.toMatchObject(notStored);
  expect(run).toHaveBeenCalledTimes(1);
});

test('a message that cannot be stored fails its call: the model is not called, and paid, again', async () => {
  const stream = vi.fn(async function* () {
    yield await Promise.resolve({ content: text, finishReason: 'stop' });
  });
  const callModel = createCallModel(
    activityDependencies({
      blobs: { put },
      conversations: { load: () => Promise.resolve([turnCreated(turnStart())]), remember: () => undefined },
      toolsets: { load: () => Promise.resolve({ tools: new Map(), servers: [], unavailable: [] }) },
      models: { resolve: () => ({ model: 'm', provider: { stream } }) },
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
    createdAt: '2026-11-21T08:00:00.000Z',
    step: 1,
    upTo: 1,
    recent: [],
  };
  await expect(new MockActivityEnvironment().run(() => callModel(input))).rejects.toMatchObject(notStored);
  expect(stream).toHaveBeenCalledTimes(1);
});
