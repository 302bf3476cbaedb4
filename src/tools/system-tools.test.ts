import { expect, test } from 'vitest';
import { NEVER_ABORTED } from '../lib/abort.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { SystemTool } from './system-tool.ts';
import { ASK_USER_QUESTION, reservedNames, SystemTools } from './system-tools.ts';
import type { RunOptions } from './tool-kind.ts';

const SPEC: AgentSpec = { model: { name: 'm' } };
const offer = () => ({ description: '', parameters: { type: 'object' } });

const GREET: SystemTool<{ greeting: string }> = {
  name: 'greet',
  offer,
  effect: 'once',
  run: ({ arguments: args }, _options, { greeting }) =>
    Promise.resolve({ status: 'result', isError: false, content: [{ type: 'text', text: `${greeting} ${args}` }] }),
};
const PASS: SystemTool<{ greeting: string }> = {
  name: 'pass',
  offer: ({ agents }) => (agents ? offer() : undefined),
  isOffered: ({ seesPart }) => seesPart,
  route: ({ index }, { greeting }) => ({ route: { to: 'answered' }, content: `${greeting} ${index}` }),
};
const tools = new SystemTools([ASK_USER_QUESTION, GREET, PASS], { greeting: 'Hello' });

async function toolsOf(spec: AgentSpec) {
  const { named } = await tools.tools(spec);
  return named(new Set());
}

function run(name: string) {
  const info = { type: 'system', name } as const;
  const call = { id: 'c1', name, arguments: 'Ann', info, route: { to: 'client' } } as const;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what these tools need
  return tools.run(call, { spec: SPEC, signal: NEVER_ABORTED } as unknown as RunOptions);
}

test('an agent has the tools that offer themselves to it, in their order, then those of its client', async () => {
  const client_tools = [{ name: 'open_door', description: null, input_schema: {} }];
  const all = await toolsOf({ ...SPEC, agents: ['clerk'], client_tools });
  expect(all.map(({ name, run: { to } }) => [name, to])).toEqual([
    ['ask_user_question', 'client'],
    ['greet', 'server'],
    ['pass', 'route'],
    ['open_door', 'client'],
  ]);
  expect(all[1]).toMatchObject({ info: { type: 'system', name: 'greet' }, run: { effect: 'once', approval: false } });
  expect((await toolsOf(SPEC)).map(({ name }) => name)).toEqual(['ask_user_question', 'greet']);
});

test('a tool runs, or routes its calls, with the services of the list; other tools do not run on the server', async () => {
  expect(await run('greet')).toMatchObject({ content: [{ text: 'Hello Ann' }] });
  for (const name of ['ask_user_question', 'pass', 'open_door']) {
    await expect(run(name)).rejects.toThrow('only the client can run this tool');
  }
  const routed = (await toolsOf({ ...SPEC, agents: [] })).find(({ name }) => name === 'pass')?.run;
  if (routed?.to !== 'route') throw new Error('the tool is not routed');
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what this tool needs
  const call = { index: 3 } as Parameters<typeof routed.route>[0];
  expect(await routed.route(call)).toMatchObject({ content: 'Hello 3' });
  expect([true, false].map((seesPart) => routed.isOffered({ seesPart }))).toEqual([true, false]);
});

test('client tools cannot have the names of the tools that their agent has, nor that of the question', () => {
  const disabled: AgentSpec = { ...SPEC, config: { ask_user_questions: { enabled: false } } };
  const names = (spec: AgentSpec) => [...reservedNames(spec, [ASK_USER_QUESTION, GREET, PASS])];
  expect(names(disabled)).toEqual(['ask_user_question', 'greet']);
  expect(names({ ...disabled, agents: [], webSearch: {} })).toEqual([
    'ask_user_question',
    'greet',
    'pass',
    'web_search',
  ]);
});
