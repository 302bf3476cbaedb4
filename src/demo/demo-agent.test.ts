import { expect, test } from 'vitest';
import { warnOfDemoModel } from './demo-agent.ts';

const ADVICE = 'it lists qwen3:8b';

test.each([
  ['that is listed', true, undefined, undefined],
  [
    'that is not listed',
    true,
    ADVICE,
    `does not list the model of the demo agent: set EVERTURN_DEMO_MODEL (${ADVICE})`,
  ],
  ['that is denied', false, ADVICE, `does not have the model of the demo agent: set EVERTURN_DEMO_MODEL (${ADVICE})`],
  [
    'that is denied without a list',
    false,
    undefined,
    'does not have the model of the demo agent: set EVERTURN_DEMO_MODEL',
  ],
])('the start warns of a demo model %s', async (_, has, alternatives, warning) => {
  const logged: unknown[] = [];
  await warnOfDemoModel({
    models: { has: () => Promise.resolve(has), alternatives: () => alternatives },
    config: { demoModel: 'gpt-5-mini' },
    log: { warn: (fields: unknown, text?: unknown) => void logged.push([fields, text]) },
  });
  expect(logged).toEqual(warning === undefined ? [] : [[{ model: 'gpt-5-mini' }, `the model provider ${warning}`]]);
});
