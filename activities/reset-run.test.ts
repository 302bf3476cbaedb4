import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { MODEL_CALL, PLACE, toolCallInput } from '../test/support/activity-inputs.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';
import { createConnectTools } from './connect-tools.ts';
import { createForceDelegate, createStopDelegate } from './control-delegate.ts';
import type { Dependencies } from './dependencies.ts';

const reset = { runId: 'the run that was reset' };
const delegate = {
  ...PLACE,
  ...reset,
  childSessionId: 'ses_2',
  subject: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
};

type Run = (dependencies: Dependencies) => () => Promise<unknown>;

test.each<[string, Run]>([
  ['callModel', (dependencies) => () => createCallModel(dependencies)({ ...MODEL_CALL, ...reset })],
  ['callTool', (dependencies) => () => createCallTool(dependencies)({ ...toolCallInput('once'), ...reset })],
  ['connectTools', (dependencies) => () => createConnectTools(dependencies)({ ...PLACE, ...reset })],
  ['forceDelegate', (dependencies) => () => createForceDelegate(dependencies)(delegate)],
  ['stopDelegate', (dependencies) => () => createStopDelegate(dependencies)(delegate)],
])('%s of a run that results from a reset has no effect', async (_, of) => {
  const used: string[] = [];
  const noting = (name: string) => () => {
    used.push(name);
    return Promise.resolve();
  };
  const run = of(
    activityDependencies({
      conversations: { call: noting('call'), toolCall: noting('toolCall') },
      toolsets: { load: noting('connect') },
      delegator: { force: noting('force'), stop: noting('stop') },
    }),
  );
  await expect(new MockActivityEnvironment().run(run)).rejects.toMatchObject({
    type: 'turn_reset',
    nonRetryable: true,
  });
  expect(used).toEqual([]);
});
