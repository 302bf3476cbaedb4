import { expect, test } from 'vitest';
import type { ApprovalPolicy, ToolCall } from '../core/records/calls.ts';
import { hashOf } from '../lib/hash.ts';
import type { AgentSpec, DecisionPolicy } from '../spec/agent-spec.ts';
import { decideCall } from './decision-policy.ts';
import { createEditCheck, editProblem } from './edit-problem.ts';
import type { AgentTool, Toolset } from './toolset.ts';

const parameters = {
  type: 'object',
  properties: {
    amount: { type: 'number' },
    note: { type: 'string', default: '' },
    to: { type: 'object', required: ['a/b'] },
  },
  required: ['amount', 'note'],
  additionalProperties: false,
};
const info = { type: 'mcp', serverId: 's', serverName: 'bank', name: 'pay' } as const;
const pay = (isFloor = false): AgentTool => ({
  name: 'bank_pay',
  description: '',
  parameters,
  info,
  run: { to: 'server', effect: 'once', approval: true, ...(isFloor && { isFloor }) },
  annotation: '@destructive',
});

const toolset = (...tools: AgentTool[]): Toolset => ({
  tools: new Map(tools.map((tool) => [tool.name, tool])),
  servers: [],
  unavailable: [],
});

const specOf = (...policies: DecisionPolicy[]): AgentSpec => ({
  model: { name: 'm' },
  config: { decision_policies: policies },
});

function edited(args: object, policy?: ApprovalPolicy): ToolCall {
  const route = { to: 'server', effect: 'once', approval: true, callHash: 'h', ...(policy && { policy }) } as const;
  return { id: 'p1', name: 'bank_pay', arguments: JSON.stringify(args), info, route };
}

test.each([
  [{ amount: 1 }, undefined],
  [{ amount: 'one' }, '/amount'],
  [{}, '/amount'],
  [{ amount: 1, more: 1 }, '/more'],
  [{ amount: 1, to: {} }, '/to/a~1b'],
])('edited arguments must fit the schema of the tool: %j', (args, pointer) => {
  const problem = editProblem(specOf(), toolset(pay()), edited(args));
  expect(problem).toEqual(
    pointer && { code: 'invalid_arguments', message: expect.stringContaining('schema'), pointer },
  );
});

test('edited arguments are validated, and policies decide, by the schema that the server lists', () => {
  const listedSchema = {
    anyOf: ['string', 'number'].map((type) => ({ properties: { amount: { type } }, required: ['amount'] })),
  };
  const offered = { type: 'object', properties: { amount: { type: 'number', default: 5 } } };
  const listed: AgentTool = { ...pay(), parameters: offered, listedSchema };
  const allow = specOf({ match: { arguments: { '/amount': {} } }, decision: 'allow' });
  const deny = specOf({ match: { arguments: { '/amount': {} } }, decision: 'deny' });
  const problemOf = (args: object, spec = specOf()) => editProblem(spec, toolset(listed), edited(args))?.code;
  expect([problemOf({ amount: 'five' }), problemOf({})]).toEqual([undefined, 'invalid_arguments']);
  expect(decideCall(allow, listed, { amount: 'five' }).decision).toBe('allow');
  const optional: AgentTool = { ...listed, listedSchema: { properties: { amount: {} } } };
  expect(decideCall(deny, optional, {}).decision).toBe('ask');
});

const upTo = (maximum: number) => ({ arguments: { '/amount': { type: 'number', maximum } } });
const two: DecisionPolicy = { match: upTo(100), decision: 'ask', quorum: 2 };
const byTwo: ApprovalPolicy = { id: hashOf(two), quorum: 2, onExpiry: 'deny' };

test('an edit is no way around a policy: only the one that the call waits by, or none, may apply to it', () => {
  const spec = specOf(
    { match: upTo(1), decision: 'allow' },
    two,
    { match: upTo(500), decision: 'ask', quorum: 2 },
    { match: upTo(900), decision: 'deny' },
  );
  const problemOf = (amount: number, tool = pay()) => editProblem(spec, toolset(tool), edited({ amount }, byTwo))?.code;
  expect([1, 50, 300, 700, 1_000].map((amount) => problemOf(amount))).toEqual([
    undefined,
    undefined,
    'edit_not_allowed',
    'edit_not_allowed',
    'edit_not_allowed',
  ]);
  // The operator requires an approval; the policy for small amounts names who gives it.
  expect(problemOf(1, pay(true))).toBe('edit_not_allowed');
});

test('a tool that is not offered cannot be validated', () => {
  expect(editProblem(specOf(), toolset(), edited({ amount: 1 }))?.code).toBe('edit_not_allowed');
  const away = { ...toolset(), unavailable: [{ server: 'bank', reason: 'it cannot be reached' }] };
  expect(editProblem(specOf(), away, edited({ amount: 1 }))).toEqual({
    code: 'unavailable',
    message: expect.stringContaining('bank: it cannot be reached'),
  });
  const renamed = { ...pay(), name: 'pay' };
  expect(editProblem(specOf(), toolset(renamed), edited({ amount: 1 }))).toBeUndefined();
});

test('the check of the API uses the agent of the call', async () => {
  const check = createEditCheck({
    rules: () => Promise.resolve(undefined),
    catalog: { agents: { spec: (hash) => Promise.resolve(hash === 'own' ? specOf(two) : specOf()) } },
    toolsets: { load: () => Promise.resolve(toolset(pay())) },
  });
  const call = { sessionId: 's', owner: { subjectId: 'ann', draftRoles: null }, call: edited({ amount: 1 }, byTwo) };
  expect(await check({ ...call, specHash: 'own' })).toBeUndefined();
  expect((await check({ ...call, specHash: 'other' }))?.code).toBe('edit_not_allowed');
});
