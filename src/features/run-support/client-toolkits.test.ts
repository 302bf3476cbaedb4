import { expect, test } from 'vitest';
import type { ToolCall } from '../../core/records/calls.ts';
import type { NewRecord, UnsequencedRecord } from '../../core/records/log.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { refreshAfter, refreshedToolkits, repeatedTool, withToolkits } from './client-toolkits.ts';

const at = '2026-11-23T08:00:00.000Z';
const by = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' } as const;
const tool = (name: string) => ({ name, input_schema: { type: 'object' } });
const spec: AgentSpec = {
  model: { name: 'm' },
  instructions: 'Own.',
  client_tools: [tool('own')],
  clientToolkits: [
    { name: 'a', system_prompt: 'A.', tools: [tool('a1')] },
    { name: 'b', system_prompt: 'B.', tools: [tool('b1')], isDynamic: true },
    { name: 'c', tools: [tool('c1')] },
  ],
};

function refreshed(toolkit: string, names: string[], systemPrompt?: string): UnsequencedRecord {
  const prompt = systemPrompt !== undefined && { systemPrompt };
  const tools = JSON.stringify(names.map(tool));
  return { kind: 'toolkit.refreshed', at, by, messageId: 'msg_1', toolkit, ...prompt, tools, hash: '' };
}

/** The instructions and the names of the tools. */
function parts(records: UnsequencedRecord[]): [string | null | undefined, string | undefined] {
  const { instructions, client_tools: tools } = withToolkits(spec, refreshedToolkits(records));
  return [instructions, tools?.map(({ name }) => name).join(' ')];
}

test('toolkits follow the agent in their order, as they were refreshed last', () => {
  expect(parts([])).toEqual(['Own.\nA.\nB.', 'own a1 b1 c1']);
  const first = refreshed('b', ['b2', 'b3'], 'New.');
  expect(parts([first])).toEqual(['Own.\nA.\nNew.', 'own a1 b2 b3 c1']);
  expect(parts([first, refreshed('b', [])])).toEqual(['Own.\nA.', 'own a1 c1']);
  expect(parts([refreshed('a', ['x'], 'Not dynamic.')])).toEqual(['Own.\nA.\nB.', 'own a1 b1 c1']);
});

test('toolkits that were refreshed with tools of one name cannot be offered', () => {
  const problemOf = (...names: string[]) =>
    repeatedTool(withToolkits(spec, refreshedToolkits([refreshed('b', names)])));
  expect(problemOf('b2')).toBeUndefined();
  expect(problemOf('b2', 'c1')).toMatchObject({ code: 'repeated_tool_name', message: expect.stringContaining('c1') });
  expect(repeatedTool({ model: { name: 'm' }, client_tools: [tool('x'), tool('x')] })).toBeUndefined();
});

const call: ToolCall = {
  id: 'c',
  name: 'b1',
  arguments: '{}',
  info: { type: 'system', name: 'b1' },
  route: { to: 'answered' },
};
const message: NewRecord = {
  kind: 'model.message',
  id: 'msg_1',
  at,
  threadId: 'main',
  content: 'x',
  refusal: '',
  reasoning: '',
  toolCalls: [call],
  finishReason: 'tool_calls',
};
const unknown: NewRecord = {
  kind: 'tool.response',
  at,
  threadId: 'main',
  toolCallId: 'c',
  outcome: 'failed',
  content: '',
  noResult: 'unknown_tool',
};
const answered: NewRecord = { ...message, toolCalls: [] };
const failing: AgentSpec = { ...spec, failsWithTools: true };

test.each<[string, boolean, NewRecord[], object?, AgentSpec?]>([
  ['calls tools', true, [message]],
  ['calls an unknown tool, of which it is told', true, [message, unknown]],
  ['calls an unknown tool, and the turn ends', false, [message, unknown], {}, failing],
  ['is an answer', false, [answered]],
  ['is an answer that does not fit', true, [{ ...answered, structured: { fits: false, problem: '' } }]],
  ['is the last of its turn', false, [message], { isLast: true }],
  ['is that of a sub-agent', false, [{ ...message, threadId: 't' }], { threadId: 't' }],
  ['was given by the client', false, [{ ...message, isGiven: true }]],
  ['is of an agent without dynamic toolkits', false, [message], {}, { model: { name: 'm' } }],
])('after a message that %s, toolkits are to be refreshed: %s', (_, isRequired, records, input, agent = spec) => {
  const required = refreshAfter({ spec: agent, input: { threadId: 'main', ...input }, records });
  expect(required.map(({ toolkits }) => toolkits)).toEqual(isRequired ? [['b']] : []);
});
