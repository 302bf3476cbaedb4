import { expect, test } from 'vitest';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { CREATE_SUB_AGENT, startSubAgent } from './start-sub-agent.ts';

const sourcesOf = (spec: AgentSpec) => ({
  catalog: { agents: { spec: () => Promise.resolve(spec) } },
  models: {
    has: (name: string) => Promise.resolve(name !== 'own/none'),
    prefixProblem: (name: string) => (name.startsWith('own/') ? undefined : 'its provider is unknown'),
  },
});
const sources = sourcesOf({ model: { name: 'own/m' } });
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

const acting = (code_actions: AgentSpec['code_actions'], rest: Partial<AgentSpec> = {}): AgentSpec => {
  return { model: { name: 'own/m' }, ...rest, code_actions };
};

/** The thread of a sub-agent that an agent starts, with these arguments. */
async function started(spec: AgentSpec, args: object = {}, parent = {}) {
  const call = { call: { id: 'c1' }, index: 0, args: { name: 'one', input: 'Go', ...args }, started: 0 };
  const result = await startSubAgent(sourcesOf(spec), { ...thread, ...parent }, call);
  return 'problem' in result ? result.problem : result.thread;
}

test.each([
  [{}, {}, 100],
  [{ max_turns: 7 }, {}, 7],
  [{ max_turns: 7 }, { max_turns: 3 }, 3],
  [{ max_turns: 7 }, { max_turns: 9 }, 7],
])('with sub_tasks %j and the arguments %j a task has %i model calls', async (limits, args, iterations) => {
  const spec = acting({ sub_tasks: limits }, { config: { iteration_limit: 2 } });
  expect(await started(spec, args)).toMatchObject({ isTask: true, iterations });
});

test('a task starts no sub-agent, and ends with a denial if its agent says so', async () => {
  const task = await started(acting({ on_deny: 'end', sub_tasks: { max_concurrent: 2 } }));
  expect(task).toMatchObject({ isTask: true, endsOnDenial: true, maxTasks: 2 });
  expect(await started(acting({}), {}, { subAgent: task })).toContain('starts no others');
});

test('the sub-agents of another agent have its limit of model calls', async () => {
  const spec: AgentSpec = { model: { name: 'own/m' }, config: { iteration_limit: 2 } };
  const agent = await started(spec);
  expect(agent).toMatchObject({ iterations: 2 });
  for (const key of ['isTask', 'maxTasks', 'endsOnDenial']) expect(agent).not.toHaveProperty(key);
});

test('only calls of an agent that acts in code are decided, and may lower a limit', () => {
  const decisions = [
    acting(undefined),
    acting({}),
    acting({ approvals: 'allow' }),
    acting({ approvals: { task: 'deny' } }),
  ];
  expect(decisions.map((spec) => CREATE_SUB_AGENT.decision?.(spec))).toEqual([undefined, 'ask', 'allow', 'deny']);
  const [other, own] = decisions.map((spec) => JSON.stringify(CREATE_SUB_AGENT.offer(spec)));
  expect([other?.includes('max_turns'), own?.includes('max_turns')]).toEqual([false, true]);
});
