import { expect, test } from 'vitest';
import type { AgentProblem, CheckScope } from '../../engine/agent-check.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { resolveAgent, type ResolveContext } from './resolve-agent.ts';
import { sessionRequest } from './wire/session.ts';

/** The only agents with a mistake are those whose model has this name. */
const MISTAKEN = 'unknown/m';

const agentOf = (model: string, subagents: unknown[] = []) => ({
  name: model === MISTAKEN ? 'mistaken' : 'good',
  description: 'One.',
  environments: [],
  model,
  subagents,
});

/** The catalog has the agents `old`, which has a mistake, `older`, of which a sub-agent has one, and `sound`, without any. */
const stored = new Map([
  ['old', agentOf(MISTAKEN)],
  ['older', agentOf('m', [agentOf(MISTAKEN)])],
  ['sound', agentOf('m', [agentOf('m')])],
]);

/** With what the agents of a request were checked. */
let checks: CheckScope[] = [];

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what the resolution of these agents uses
const context = {
  catalog: {
    agentDefinitions: {
      get: (name: string) => {
        const definition = stored.get(name);
        const row = { name, version: 1, spec_hash: 'h', definition: JSON.stringify({ ...definition, name }) };
        return Promise.resolve(definition && row);
      },
    },
  },
  agentCheck: {
    firstMistake: ({ model }: AgentSpec): AgentProblem | undefined =>
      model.name === MISTAKEN ? { code: 'invalid_agent', message: 'it is', param: 'model.name' } : undefined,
    firstProblem: (_: AgentSpec, scope: CheckScope) => {
      checks.push(scope);
      return Promise.resolve(undefined);
    },
  },
  config: { defaultModel: undefined },
  registry: { environmentServer: () => undefined },
} as unknown as ResolveContext;

const caller = { subject: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' }, roles: ['user'] } as const;

async function pathOfMistake(request: object, isStored = false): Promise<string | undefined> {
  try {
    await resolveAgent(context, sessionRequest.parse({ messages: 'Go', ...request }), { caller, isStored });
    return undefined;
  } catch (error) {
    expect(error).toMatchObject({ code: 'invalid_agent' });
    return String((error as { param?: unknown }).param);
  }
}

test.each<[string, object, string | undefined]>([
  ['an agent of the request', { agent: agentOf(MISTAKEN) }, 'agent.model'],
  ['a sub-agent of the request', { agent: agentOf('m', [agentOf(MISTAKEN)]) }, 'agent.subagents.0.model'],
  ['a registered agent', { agent: 'old' }, undefined],
  ['a sub-agent of a registered agent', { agent: 'older' }, undefined],
  ['a registered sub-agent of an agent of the request', { agent: agentOf('m', ['old']) }, undefined],
  [
    'a registered agent that the request changes',
    { agent: 'old', overrides: { 'agent.instructions': 'Go.' } },
    undefined,
  ],
  [
    'a registered agent to which the request gives its model',
    { agent: 'old', overrides: { 'agent.model': MISTAKEN } },
    'agent',
  ],
  [
    'a sub-agent of a registered agent that the request changes',
    { agent: 'older', overrides: { 'agent.instructions': 'Go.' } },
    undefined,
  ],
])('a mistake in %s', async (_, request, place) => {
  expect(await pathOfMistake(request)).toBe(place);
});

test('the request of a schedule was stored before', async () => {
  expect(await pathOfMistake({ agent: agentOf(MISTAKEN, [agentOf(MISTAKEN)]) }, true)).toBeUndefined();
});

test.each<[string, object, boolean[]]>([
  ['of the request are new', { agent: agentOf('m', [agentOf('m')]) }, [false, false]],
  ['of a registered agent are known', { agent: 'sound' }, [true, true]],
  ['of a registered sub-agent are known', { agent: agentOf('m', ['old']) }, [false, true]],
  [
    'that the request gives a registered agent are new',
    { agent: 'sound', overrides: { 'agent.answer_format': { type: 'object' } } },
    [false, true],
  ],
  [
    'that the request gives a sub-agent of a registered agent are new',
    { agent: 'sound', overrides: { 'agent.subagents[name=good].answer_format': { type: 'object' } } },
    [false, false],
  ],
])('schemas %s, and share one budget', async (_, request, areStored) => {
  checks = [];
  expect(await pathOfMistake(request)).toBeUndefined();
  expect(checks.map(({ budget }) => budget === undefined)).toEqual(areStored);
  expect(new Set(checks.flatMap(({ budget }) => budget ?? [])).size).toBeLessThanOrEqual(1);
});
