import { expect, test } from 'vitest';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { startSubAgent } from './start-sub-agent.ts';

const spec: AgentSpec = { model: { name: 'own/m' } };
const sources = {
  catalog: { agents: { spec: () => Promise.resolve(spec) } },
  models: {
    has: (name: string) => Promise.resolve(name !== 'own/none'),
    prefixProblem: (name: string) => (name.startsWith('own/') ? undefined : 'its provider is unknown'),
  },
};
const thread = { messageId: 'msg_1', threadId: 'main', specHash: 'h', mayStart: 1 };

test.each([
  ['own/other', undefined],
  ['own/none', 'There is no model own/none.'],
  ['anthropic/m', 'There is no model anthropic/m: its provider is unknown'],
])('a sub-agent with the model %s: %s', async (model, problem) => {
  const args = { name: 'one', input: 'Go', model };
  const started = await startSubAgent(sources, thread, { call: { id: 'c1' }, index: 0, args, started: 0 });
  expect('problem' in started ? started.problem : undefined).toBe(problem);
});
