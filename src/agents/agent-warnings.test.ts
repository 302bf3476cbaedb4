import { expect, test } from 'vitest';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { aboutServer, agentWarnings } from './agent-warnings.ts';

type Known = Parameters<typeof agentWarnings>[1];

const warningsOf = (spec: Partial<AgentSpec>, known: Partial<Known> = {}): string[] =>
  agentWarnings(
    { model: { name: 'm' }, ...spec },
    { mistakes: [], subjects: undefined, agents: [], unasked: [], ...known },
  );

test('a name in a text that has no value is a warning with its place and the nearest name', () => {
  const variables = { company: 'ACME', toString: 'text' };
  const messages = [
    { type: 'user.message' as const, content: '{{company}}' },
    { type: 'user.message' as const, content: '{{ year }} {{compny}}' },
  ];
  expect(warningsOf({ instructions: 'For {{ compny }}, {{toString}}, {{valueOf}}.', messages, variables })).toEqual([
    'instructions: {{compny}} stays as it is, since variables has no compny, did you mean company?',
    'instructions: {{valueOf}} stays as it is, since variables has no valueOf',
    'messages.1.content: {{year}} stays as it is, since variables has no year',
  ]);
});

test('the notation of the run API for its context is no variable', () => {
  expect(warningsOf({ instructions: '{{context.user.name}} {{ context.a }}' })).toEqual([]);
  expect(warningsOf({ instructions: '{{contexts}}' })).toHaveLength(1);
});

test('a sub-agent that is not registered is a warning', () => {
  expect(warningsOf({ agents: ['clerk', 'ghost'] }, { agents: ['clerk'] })).toEqual([
    'agents.1: no agent is registered under the name ghost, and turns are rejected until there is one',
  ]);
});

test('tools of inline servers that run unasked are a warning', () => {
  expect(warningsOf({}, { unasked: ['mcp_servers.0: a, b'] })).toEqual(['mcp_servers.0: a, b']);
});

test('what would not be accepted now is a warning', () => {
  const mistake = {
    code: 'invalid_agent' as const,
    message: 'no model provider has the name "x"',
    param: 'model.name',
  };
  expect(warningsOf({}, { mistakes: [mistake] })).toEqual(['model.name: no model provider has the name "x"']);
  const config = { iteration_limit: 1_000_000, retention_days: 1 };
  expect(warningsOf({ config })).toEqual([expect.stringMatching(/^config\.iteration_limit: /)]);
});

test('a field of a stored agent that is now wrong is a warning: unknown keys, and policies that fit all calls', () => {
  const stored = {
    config: {
      sandbox: { enabled: false, network_polcy: 'none' },
      decision_policies: [{ match: {}, decision: 'allow' }],
    },
    callsInSequence: true,
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as earlier versions have stored it
  expect(warningsOf(stored as unknown as AgentSpec)).toEqual([
    'config.sandbox: unknown key "network_polcy": do you mean "network_policy"?',
    'config.decision_policies.0.match: must say which calls it fits; {"tool": "*"} fits all',
  ]);
});

test('fields that the server adds to a spec are no part of the format', () => {
  expect(warningsOf({ callsInSequence: true, delegates: [] })).toEqual([]);
});

test('an agent has at most 50 warnings, and one that says how many there are', () => {
  const instructions = Array.from({ length: 60 }, (_, i) => `{{name${i}}}`).join('');
  const warnings = warningsOf({ instructions });
  expect(warnings).toHaveLength(51);
  expect(warnings.at(-1)).toBe('10 more');
});

test('many brackets are searched in linear time', () => {
  expect(warningsOf({ instructions: `${'{{ '.repeat(300_000)}${' '.repeat(100_000)}` })).toEqual([]);
});

test('the warnings on a server are about it, or about a policy for its calls', () => {
  const spec: AgentSpec = {
    model: { name: 'm' },
    mcp_servers: ['shop', 'bank'].map((name) => ({ type: 'truefoundry-mcp-registry', name })),
    config: {
      decision_policies: Array.from({ length: 12 }, (_, i) => ({
        match: i === 1 ? { server: 'bank' } : { tool: '*' },
        decision: 'ask',
      })),
    },
  };
  const concerned = ['mcp_servers.1: a', 'config.decision_policies.1.match: b', 'config.decision_policies.1: c'];
  const others = ['mcp_servers.0: d', 'config.decision_policies.11.match: e', 'instructions: f'];
  expect(aboutServer('bank', spec, [...others, ...concerned])).toEqual(concerned);
});
