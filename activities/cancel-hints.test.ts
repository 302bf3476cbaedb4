import { defaultActivityInfo, MockActivityEnvironment } from '@temporalio/testing';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { CallModelInput, CallToolInput } from '../src/core/history.ts';
import { InProcessBus } from '../src/live/in-process-bus.ts';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { TURN_ID } from '../test/support/random-turn.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';
import { createConnectTools } from './connect-tools.ts';

const forever = (): Promise<never> => new Promise(() => undefined);
const bus = new InProcessBus();
/** The dependencies of activities that never get beyond what they read first. */
const dependencies = activityDependencies({
  bus,
  catalog: { agents: { spec: forever } },
  conversations: { load: forever, toolCall: forever },
});

const place = {
  deadline: Infinity,
  owner: { subjectId: 'ann', draftRoles: null },
  turnId: TURN_ID,
  sessionId: 'ses_1',
  threadId: 'main',
  specHash: 'a1',
  runId: defaultActivityInfo.workflowExecution?.runId ?? '',
};
const modelInput: CallModelInput = {
  ...place,
  previousTurnId: null,
  sequence: 1,
  messageId: 'msg_0',
  createdAt: '2026-11-21T08:00:00.000Z',
  step: 2,
  upTo: 1,
  recent: [],
};
const toolInput: CallToolInput = {
  ...place,
  toolCallId: 'call_0',
  source: { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0, run: { effect: 'once', callHash: 'h' } },
};

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test.each([
  ['callModel', () => createCallModel(dependencies)(modelInput)],
  ['callTool', () => createCallTool(dependencies)(toolInput)],
  ['connectTools', () => createConnectTools(dependencies)(place)],
])('%s asks Temporal whether it is cancelled before its next heartbeat is due, on a hint', async (_name, activity) => {
  const env = new MockActivityEnvironment();
  let heartbeats = 0;
  env.on('heartbeat', () => (heartbeats += 1));
  void env.run<[], unknown, () => Promise<unknown>>(activity);
  await vi.advanceTimersByTimeAsync(100);
  bus.hintCancel('turn_other');
  await vi.advanceTimersByTimeAsync(100);
  expect(heartbeats).toBe(0);
  bus.hintCancel(TURN_ID);
  await vi.advanceTimersByTimeAsync(100);
  expect(heartbeats).toBeGreaterThan(0);
});
