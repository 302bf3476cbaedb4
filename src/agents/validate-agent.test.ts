import { pino } from 'pino';
import { expect, test } from 'vitest';
import { McpRegistry } from '../mcp/registry.ts';
import type { ModelProvider } from '../models/provider.ts';
import { ModelProviders } from '../models/providers.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { KnownSubjects } from './policy-warnings.ts';
import { AgentValidator } from './validate-agent.ts';

/** Its only provider has every model, lists one with a slash, and is sent no name with another prefix. */
function validator(
  logged: unknown[] = [],
  {
    knownSubjects = () => Promise.resolve<KnownSubjects>({ roles: new Map(), hasBearers: false }),
    find = () => Promise.resolve(undefined),
    unasked = () => Promise.resolve([]),
  }: {
    knownSubjects?: () => Promise<KnownSubjects>;
    find?: ModelProvider['find'];
    unasked?: (spec: AgentSpec) => Promise<string[]>;
  } = {},
): AgentValidator {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- no model is called
  const provider = { find } as unknown as ModelProvider;
  const models = new Map([['org/own', {}]]);
  const own = { provider, options: new Set<never>(), audioTypes: new Set<never>(), models, acceptsSlashes: false };
  return new AgentValidator({
    models: new ModelProviders('own', new Map([['own', own]]), { log: pino({ level: 'silent' }) }),
    registry: new McpRegistry(),
    notReady: async () => undefined,
    featureProblem: () => Promise.resolve(undefined),
    systemTools: [],
    policyServer: () => ({ issuer: undefined, isKeyless: false }),
    knownSubjects,
    registered: (names) => Promise.resolve(names.filter((name) => name === 'clerk')),
    unasked,
    log: { warn: (fields: unknown) => void logged.push(fields) },
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
  const scope = { owner: null, budget: undefined };
  expect(await validator().firstProblem(stored, scope)).toBeUndefined();
});

test('an agent has a warning for each sub-agent that is not registered', async () => {
  expect(await validator().warnings({ model: { name: 'm' }, agents: ['clerk'] })).toEqual([]);
  expect(await validator().warnings({ model: { name: 'm' }, agents: ['clerk', 'ghost'] })).toEqual([
    expect.stringMatching(/^agents\.1: .*ghost/),
  ]);
});

test('servers are asked only for an agent that is being written; the result stays in its warnings', async () => {
  const asked: AgentSpec[] = [];
  const agents = validator([], { unasked: (spec) => (asked.push(spec), Promise.resolve(['mcp_servers.0: debug'])) });
  const spec = () => ({ model: { name: 'm' } });
  expect(await agents.warnings(spec())).toEqual([]);
  await agents.logWarnings({ name: 'desk', version: 1, spec: spec() });
  expect(asked).toEqual([]);
  expect(await agents.newWarnings(spec())).toEqual(['mcp_servers.0: debug']);
  // The catalog gives another object than the request.
  expect(await agents.warnings(spec())).toEqual(['mcp_servers.0: debug']);
  expect(asked).toEqual([spec()]);
});

test('the log has the warnings of each version of an agent once, without those that providers log', async () => {
  const logged: unknown[] = [];
  const agents = validator(logged);
  const spec: AgentSpec = { model: { name: 'anthropic/m' }, agents: ['ghost'] };
  for (const version of [1, 1, 2]) await agents.logWarnings({ name: 'desk', version, spec });
  await agents.logWarnings({ name: 'sound', version: 1, spec: { model: { name: 'm' } } });
  const warnings = [expect.stringMatching(/^agents\.0: .*ghost/)];
  expect(logged).toEqual([1, 2].map((version) => ({ agent: 'desk', version, warnings })));
});

test('the warnings about a server are returned, and no outage is a reason not to connect to it', async () => {
  const spec: AgentSpec = {
    model: { name: 'm' },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'bank' }],
    config: {
      pause: 'wait',
      decision_policies: [{ match: { server: 'bank' }, decision: 'ask', approvers: { subjects: ['zed'] } }],
    },
  };
  const place = 'config.decision_policies.0';
  expect(await validator().warningsAbout('bank', spec)).toEqual([
    `${place}.approvers.subjects.0: no working API key has the name zed`,
    expect.stringContaining(`${place}: 1 must allow a call`),
  ]);
  expect(await validator().warningsAbout('shop', spec)).toEqual([]);
  const logged: unknown[] = [];
  const failing = validator(logged, {
    knownSubjects: () => Promise.reject(new Error('the catalog is unavailable')),
  });
  expect(await failing.warningsAbout('bank', spec)).toEqual([]);
  expect(logged).toHaveLength(1);
});

test('a model that its provider denies is a problem, and one that it does not list a warning: both name the nearest', async () => {
  const spec: AgentSpec = { model: { name: 'known', fallbacks: ['tinny'] } };
  const scope = { owner: null, budget: undefined };
  const others = ['tiny', 'known'];
  const find = (exists: boolean) => (model: string) =>
    Promise.resolve(model === 'known' ? { exists: true } : { exists, others });
  expect(await validator([], { find: find(false) }).firstProblem(spec, scope)).toMatchObject({
    message: 'the model provider has no model tinny: did you mean own/tiny?',
    param: 'model.fallbacks.0',
  });
  const lenient = validator([], { find: find(true) });
  expect(await lenient.firstProblem(spec, scope)).toBeUndefined();
  expect(await lenient.warnings(spec)).toEqual([
    'model.fallbacks.0: the model provider does not list the model tinny: did you mean own/tiny?',
  ]);
});
