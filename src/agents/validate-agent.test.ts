import { pino } from 'pino';
import { expect, test } from 'vitest';
import { LOCAL } from '../auth/api-keys.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { SchemaBudget } from '../engine/schema-budget.ts';
import { runnableAgent } from '../engine/start-turn.ts';
import { McpRegistry } from '../mcp/registry.ts';
import type { ModelProvider } from '../models/provider.ts';
import { ModelProviders } from '../models/providers.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { AgentValidator } from './validate-agent.ts';

/** Its only provider has every model, lists one with a slash, and is sent no name with another prefix. */
function validator(): AgentValidator {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- no model is called
  const provider = { has: () => Promise.resolve(true) } as unknown as ModelProvider;
  const models = new Map([['org/own', {}]]);
  const own = { provider, options: new Set<never>(), audioTypes: new Set<never>(), models, acceptsSlashes: false };
  return new AgentValidator({
    models: new ModelProviders('own', new Map([['own', own]]), { log: pino({ level: 'silent' }) }),
    registry: new McpRegistry(),
    skills: { list: () => Promise.resolve({ skills: [], unavailable: [] }) },
    policyServer: () => ({ issuer: undefined, isKeyless: false }),
    knownSubjects: () => Promise.resolve({ roles: new Map(), hasBearers: false }),
    registered: (names) => Promise.resolve(names.filter((name) => name === 'clerk')),
  });
}

test.each<[string, AgentSpec['model'], string | undefined]>([
  ['name', { name: 'anthropic/m' }, 'model.name'],
  ['second fallback', { name: 'own/m', fallbacks: ['known', 'anthropic/m'] }, 'model.fallbacks.1'],
  ['name that the default provider lists', { name: 'org/own' }, undefined],
])('a model whose prefix names no provider is a mistake of a new agent: %s', async (_, model, param) => {
  const mistake = validator().firstMistake({ model });
  expect(mistake?.param).toBe(param);
  expect(mistake?.code).toBe(param && 'invalid_agent');
  const warnings = await validator().warnings({ model });
  expect(warnings).toEqual(param === undefined ? [] : [`${param}: ${mistake?.message}`]);
});

test('an agent with such a model can run, since it may have been stored before', async () => {
  const stored: AgentSpec = { model: { name: 'm', fallbacks: ['anthropic/m'] } };
  const scope = { owner: null, budget: new SchemaBudget(), isStored: true };
  expect(await validator().firstProblem(stored, scope)).toBeUndefined();
});

test('an agent is told which of its sub-agents are registered', async () => {
  expect(await validator().warnings({ model: { name: 'm' }, agents: ['clerk'] })).toEqual([]);
  expect(await validator().warnings({ model: { name: 'm' }, agents: ['clerk', 'ghost'] })).toEqual([
    expect.stringMatching(/^agents\.1: .*ghost/),
  ]);
});

test('a turn is rejected if the agent, with those that it may start, exceeds the budget of schemas', async () => {
  const withConditions = (count: number, agents?: string[]): AgentSpec => ({
    model: { name: 'm' },
    ...(agents && { agents }),
    config: {
      decision_policies: Array.from({ length: count }, (_, i) => ({
        match: { arguments: { '/amount': { maximum: i } } },
        decision: 'ask',
      })),
    },
  });
  const clerk = { spec: withConditions(41), spec_hash: 'clerk' };
  const begin = (conditions: number) => {
    const spec = withConditions(conditions, ['clerk']);
    const agents = { spec: () => Promise.resolve(spec), get: () => Promise.resolve(clerk) };
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what the check reads
    const catalog = { agents } as unknown as Catalog;
    const session = { spec_hash: 'main', subject_id: 'ann', type: 'session', draft_roles: null, closed: 0 } as const;
    return runnableAgent({ catalog, agentCheck: validator() }, session, LOCAL);
  };
  expect(await begin(59)).toMatchObject({ agents: { clerk: 'clerk' } });
  await expect(begin(60)).rejects.toMatchObject({
    code: 'invalid_agent',
    param: 'agents.clerk.config.decision_policies.40.match.arguments',
  });
  await expect(begin(101)).rejects.toMatchObject({ param: 'agent.config.decision_policies.100.match.arguments' });
});
