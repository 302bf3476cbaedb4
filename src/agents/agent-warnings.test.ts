import { expect, test } from 'vitest';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { agentWarnings } from './agent-warnings.ts';

type Known = Parameters<typeof agentWarnings>[1];

const warningsOf = (spec: Partial<AgentSpec>, known: Partial<Known> = {}): string[] =>
  agentWarnings({ model: { name: 'm' }, ...spec }, { mistakes: [], subjects: undefined, agents: [], ...known });

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

test('what the server adds to a spec is no part of the format', () => {
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
