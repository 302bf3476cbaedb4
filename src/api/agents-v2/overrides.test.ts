import { expect, test } from 'vitest';
import { ApiError } from '../http/errors.ts';
import { applyOverrides } from './overrides.ts';
import type { FullAgent } from './wire/agent.ts';
import { environment } from './wire/environment.ts';

const tool = (name: string, description = '') => ({ name, description, input_schema: { type: 'object' } });
const agent: FullAgent = {
  name: 'desk',
  description: 'A desk',
  environments: [
    environment.parse({ kind: 'web', id: 'shop', start_url: 'https://shop.example.com' }),
    environment.parse({ kind: 'desktop', id: 'office' }),
  ],
  instructions: 'Be brief.',
  tools: [tool('look', 'same'), tool('take', 'same')],
  subagents: [{ name: 'helper', description: 'Helps', environments: [], instructions: 'Help.' }],
};

function failure(overrides: Record<string, unknown>): unknown {
  try {
    applyOverrides(agent, overrides);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const [issue] = error.issues;
    return [issue?.path, issue?.message];
  }
  return undefined;
}

test.each<[path: string, value: unknown, changed: object]>([
  ['agent.instructions', 'Be long.', { instructions: 'Be long.' }],
  ['agent.instructions', null, { instructions: null }],
  ['agent.answer_format', { type: 'object' }, { answer_format: { type: 'object' } }],
  ['agent.tools', [tool('only')], { tools: [tool('only')] }],
  ['agent.tools[name=take].description', 'New', { tools: [tool('look', 'same'), tool('take', 'New')] }],
  ['agent.tools[name="take"]', tool('give'), { tools: [tool('look', 'same'), tool('give')] }],
  ['agent.skills', ['refunds'], { skills: ['refunds'] }],
])('%s is replaced', (path, value, changed) => {
  const before = structuredClone(agent);
  expect(applyOverrides(agent, { [path]: value }).agent).toEqual({ ...agent, ...changed });
  expect(agent).toEqual(before);
});

test('values in environments are replaced one after the other, and their defaults filled in', () => {
  const { agent: next, changed } = applyOverrides(agent, {
    'agent.environments[kind=web].start_url': 'https://other.example.com',
    'agent.environments[kind=web].mode': { type: 'visual', width: 800 },
    'agent.environments[kind=web].mode.height': 600,
    // Valid only together.
    'agent.environments[kind=web].persist_browser_profile': true,
    'agent.environments[kind=web].browser_profile_id': 'p1',
    'agent.subagents[name=helper].instructions': 'Do not help.',
  });
  expect(next.environments).toMatchObject([
    {
      start_url: 'https://other.example.com',
      mode: { type: 'visual', width: 800, height: 600, markdown: false },
      persist_browser_profile: true,
    },
    { kind: 'desktop', id: 'office' },
  ]);
  expect(next.subagents).toMatchObject([{ instructions: 'Do not help.' }]);
  expect([...changed]).toEqual(['environments', 'subagents']);
});

test.each<[path: string, value: unknown, message: RegExp]>([
  ['agent', {}, /must be a path/],
  ['messages', 'x', /must be a path/],
  ['agents.model', 'x', /must be a path/],
  ['agent[name=desk].model', 'x', /must be a path/],
  ['agent..model', 'x', /must be a path/],
  ['agent.colour', 'red', /no field "colour"/],
  ['agent.__proto__', {}, /no field/],
  ['agent.constructor.name', 'x', /no field/],
  ['agent.model', 5, /expected string/],
  ['agent.description', null, /expected string/],
  ['agent.environments[kind=web].start_url', 'nowhere', /Invalid URL/],
  ['agent.environments[kind=web].mode.width', '800', /expected number/],
  ['agent.environments[kind=web].colour', 'red', /unknown key "colour"/],
  ['agent.environments[kind=web].__proto__', { host: 'cloud' }, /unknown key/],
  ['agent.environments[kind=android].id', 'x', /no member of the list has \[kind=android\]/],
  ['agent.environments[__proto__=x].id', 'x', /no member/],
  ['agent.environments.id', 'x', /select a member/],
  ['agent.environments.0.id', 'x', /select a member/],
  ['agent.tools[description=same].name', 'x', /2 members of the list/],
  ['agent.instructions[a=b]', 'x', /there is none/],
  ['agent.answer_format.type', 'object', /there is no value in which type/],
])('%s = %j is refused', (path, value, message) => {
  expect(failure({ [path]: value })).toEqual([['overrides', path], expect.stringMatching(message)]);
});

test('an error is at the override that has caused it', () => {
  const wrong = 'agent.environments[kind=web].mode.width';
  const others = {
    'agent.environments[kind=web].start_url': 'https://x.example.com',
    'agent.environments[kind=desktop].settle_s': 1,
  };
  expect(failure({ [wrong]: -1, ...others })).toEqual([['overrides', wrong], expect.any(String)]);
  expect(failure({ ...others, [wrong]: -1 })).toEqual([['overrides', wrong], expect.any(String)]);
});
