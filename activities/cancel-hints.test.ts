import { MockActivityEnvironment } from '@temporalio/testing';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { InProcessBus } from '../src/live/in-process-bus.ts';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { MODEL_CALL, PLACE, toolCallInput } from '../test/support/activity-inputs.ts';
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
  conversations: { call: forever, toolCall: forever },
});

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test.each([
  ['callModel', () => createCallModel(dependencies)(MODEL_CALL)],
  ['callTool', () => createCallTool(dependencies)(toolCallInput('once'))],
  ['connectTools', () => createConnectTools(dependencies)(PLACE)],
])('%s asks Temporal whether it is cancelled before its next heartbeat is due, on a hint', async (_name, activity) => {
  const env = new MockActivityEnvironment();
  let heartbeats = 0;
  env.on('heartbeat', () => (heartbeats += 1));
  void env.run<[], unknown, () => Promise<unknown>>(activity);
  await vi.advanceTimersByTimeAsync(100);
  bus.hint('cancel:turn_other');
  await vi.advanceTimersByTimeAsync(100);
  expect(heartbeats).toBe(0);
  bus.hint(`cancel:${TURN_ID}`);
  await vi.advanceTimersByTimeAsync(100);
  expect(heartbeats).toBeGreaterThan(0);
});
