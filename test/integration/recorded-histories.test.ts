import { Worker } from '@temporalio/worker';
import { pino } from 'pino';
import { beforeAll, expect, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { installTemporalRuntime } from '../../src/telemetry/temporal-runtime.ts';
import { workflowBundle } from '../../src/temporal/workflow-bundle.ts';
import packageJson from '../../package.json' with { type: 'json' };
import { readHistories, recordedScenarios } from '../support/histories.ts';

const scenarios = await recordedScenarios();

// It would log each history.
beforeAll(() => installTemporalRuntime(pino({ level: 'silent' })));

test('histories of this release exist', () => {
  expect(scenarios.some((scenario) => scenario.startsWith(`${packageJson.version}/`))).toBe(true);
});

test.each(scenarios)('%s replays on the current workflow code', async (scenario) => {
  const histories = await readHistories(scenario);
  expect(histories.length).toBeGreaterThan(0);
  const options = { workflowBundle: await workflowBundle(loadConfig({}).cacheDir) };
  const replayed: string[] = [];
  for await (const { workflowId, error } of Worker.runReplayHistories(options, histories)) {
    expect(error, `${workflowId} does not replay: see "Changing workflow code" in CONTRIBUTING.md`).toBeUndefined();
    replayed.push(workflowId);
  }
  expect(replayed).toEqual(histories.map(({ workflowId }) => workflowId));
});
