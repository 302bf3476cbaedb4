import { expect, test } from 'vitest';
import type { AgentSpec, DecisionPolicy } from '../spec/agent-spec.ts';
import { cpuStopwatch } from '../lib/timeout.ts';
import {
  decideCall,
  decisionPolicyWarnings,
  fitsWildcards,
  mayAsk,
  unaskedWarnings,
  type CallRules,
  type Decision,
} from './decision-policy.ts';
import type { AgentTool } from './toolset.ts';

const tool = (overrides: Partial<Extract<AgentTool['run'], { to: 'server' }>> = {}): AgentTool => ({
  name: 'bank_pay',
  description: '',
  parameters: {},
  info: { type: 'mcp', serverId: 's', serverName: 'bank', name: 'pay_bill' },
  run: { to: 'server', effect: 'once', approval: true, ...overrides },
  annotation: '@destructive',
});

/** Conditions, on which it depends whether a policy fits. */
const SOME = { arguments: { '/amount': { type: 'number' } } };

const specOf = (...policies: DecisionPolicy[]): AgentSpec => ({
  model: { name: 'm' },
  config: { decision_policies: policies },
});

test.each<[DecisionPolicy['match'], boolean]>([
  [{}, true],
  [{ server: 'bank', tool: 'pay_*', annotations: '@destructive' }, true],
  [{ server: 'shop' }, false],
  [{ tool: 'bank_pay' }, false],
  [{ annotations: '@write' }, false],
  [{ annotations: '@unannotated' }, false],
  [{ arguments: { '/amount': { type: 'number', maximum: 100 } } }, true],
  [{ arguments: { '/amount': { type: 'number', maximum: 10 } } }, false],
  [{ arguments: { '/to/1/a~1b': { const: 'x' } } }, true],
  [{ arguments: { '/to/1/a~01b': { const: 'y' } } }, true],
  [{ arguments: { '/to/2': {} } }, false],
  [{ arguments: { '/toString': {} } }, false],
])('a policy with match %j fits: %s', (match, fits) => {
  const args = { amount: 50, to: ['ann', { 'a/b': 'x', 'a~1b': 'y' }] };
  expect(decideCall(specOf({ match, decision: 'deny' }), tool(), args).decision).toBe(fits ? 'deny' : 'ask');
});

const parameters = {
  type: 'object',
  properties: {
    amount: { type: 'number', default: 500 },
    to: { type: 'string' },
    options: { type: 'object', properties: { fast: { type: 'boolean' } }, default: { fast: true } },
  },
  required: ['amount', 'to'],
};

test.each<[object, string, unknown, DecisionPolicy['decision']]>([
  // A server may read them as 500, and fill in its defaults.
  [{ amount: '500', to: 'ann' }, '/amount', { type: 'number', minimum: 100 }, 'deny'],
  [{ amount: ['500'], to: 'ann' }, '/amount', { type: 'number', minimum: 100 }, 'deny'],
  [{ to: 'ann' }, '/amount', { type: 'number', minimum: 100 }, 'deny'],
  [{ amount: 1, to: 'ann' }, '/options/fast', { const: true }, 'deny'],
  [{ amount: 1, to: 1 }, '/to', { const: '1' }, 'deny'],
  [{ amount: 1, to: 'ann' }, '/amount', { type: 'number', minimum: 100 }, 'ask'],
  [{ amount: 1, to: 'ann', options: {} }, '/options/fast', { const: true }, 'deny'],
])('no policy is passed by arguments that the server may read as others: %j', (args, pointer, condition, expected) => {
  const policy = { match: { arguments: { [pointer]: condition } }, decision: 'deny' } as DecisionPolicy;
  const asked = { ...tool(), parameters };
  expect(decideCall(specOf(policy), asked, { ...args }).decision).toBe(expected);
});

const upTo = (maximum: number) => ({ arguments: { '/amount': { type: 'number', maximum } } });
const from = (minimum: number) => ({ arguments: { '/amount': { type: 'number', minimum } } });
const ask = (quorum: number): DecisionPolicy => ({ match: { tool: '*' }, decision: 'ask', quorum });

test.each<[object, 'allow' | 'ask']>([
  [{ amount: 50, to: 'ann' }, 'allow'],
  [{ amount: '500', to: 'ann' }, 'ask'],
  [{ to: 'ann' }, 'ask'],
])('a policy that allows fits only arguments that are what they seem: %j', (args, expected) => {
  const policy: DecisionPolicy = { match: { arguments: { '/amount': { maximum: 1_000 } } }, decision: 'allow' };
  expect(decideCall(specOf(policy), { ...tool(), parameters }, { ...args }).decision).toBe(expected);
});

test.each<[string, object, DecisionPolicy[], 'ask' | 'deny', number?]>([
  ['a later denial', { amount: '5000', to: 'ann' }, [{ match: upTo(100), decision: 'ask' }], 'deny'],
  [
    'a later denial by a condition that seems to fit',
    { amount: '5000', to: 'ann' },
    [{ match: { arguments: { '/amount': { type: 'string' } } }, decision: 'ask' }],
    'deny',
  ],
  ['a later quorum', { to: 'ann' }, [{ match: from(500), decision: 'ask' }, ask(2)], 'ask', 2],
  ['an earlier quorum', { to: 'ann' }, [{ match: from(500), decision: 'ask', quorum: 3 }, ask(2)], 'ask', 3],
  ['the approvals of the server', { amount: '1' }, [{ match: from(9), decision: 'ask', quorum: 2 }], 'ask', 2],
])('arguments that may be others are no way around %s', (_, args, policies, decision, quorum) => {
  const spec = specOf(...policies, ...(decision === 'deny' ? [{ match: {}, decision }] : []));
  const decided = decideCall(spec, { ...tool(), parameters }, { ...args });
  expect([decided.decision, decided.policy?.quorum]).toEqual([decision, quorum]);
});

test('among two policies of the same quorum that may apply, the one with approvers does, else the first', () => {
  const first: DecisionPolicy = { match: from(9), decision: 'ask', expires_in_seconds: 9 };
  const decide = (later: DecisionPolicy) =>
    decideCall(specOf(first, later), { ...tool(), parameters }, { amount: '1' }).policy;
  expect(decide({ ...ask(1), approvers: { subjects: ['bob'] } })).toMatchObject({ approvers: { subjects: ['bob'] } });
  expect(decide({ ...ask(1), exclude_requester: true })).toMatchObject({ excludeRequester: true });
  expect(decide(ask(1))).toMatchObject({ expiresInSeconds: 9 });
});

test.each<[string, object]>([
  ['a reference to nowhere', { properties: { amount: { $ref: '#/$defs/none' } } }],
  ['an unknown type', { properties: { amount: { type: 'money' } } }],
  ['more than 64 KiB', { properties: { amount: { type: 'string' } }, description: 'x'.repeat(64 * 1024) }],
  ['a pattern that takes too long', { properties: { to: { pattern: '^(a+)+$' } } }],
])('arguments that cannot be checked, by a schema with %s, fit no policy that allows', (_, unchecked) => {
  const spec = specOf({ match: upTo(100), decision: 'allow' });
  const args = { amount: 50, to: `${'a'.repeat(40)}b` };
  expect(decideCall(spec, { ...tool(), parameters: { ...unchecked } }, args).decision).toBe('ask');
});

test('a policy holds for every kind of tool: one without a server fits where none is asked for', () => {
  const kinds: AgentTool[] = [
    { ...tool(), info: { type: 'system', name: 'pay_bill' } },
    { ...tool(), info: { type: 'system', name: 'pay_bill' }, run: { to: 'client' } },
    { ...tool(), run: { to: 'route', isOffered: () => true, route: () => ({ route: { to: 'answered' } }) } },
  ];
  for (const one of kinds) {
    const decide = (match: DecisionPolicy['match']) =>
      decideCall(specOf({ match, decision: 'deny' }), one, {}).decision;
    expect(decide({ tool: 'pay_*' })).toBe('deny');
    expect(decide({ tool: 'refund' })).not.toBe('deny');
  }
  const [system] = kinds;
  const ofServer: DecisionPolicy = { match: { server: 'bank', tool: 'pay_*' }, decision: 'deny' };
  expect(decideCall(specOf(ofServer), system!, {}).decision).toBe('ask');
});

test('policies that differ in their match only are told apart by their ids', () => {
  const upTo = (maximum: number): DecisionPolicy => ({ match: { arguments: { '/a': { maximum } } }, decision: 'ask' });
  const idOf = (policy: DecisionPolicy, a: number) => decideCall(specOf(policy), tool(), { a }).policy?.id;
  expect(idOf(upTo(5), 1)).toMatch(/^[0-9a-f]{64}$/);
  expect(idOf(upTo(5), 1)).toBe(idOf(upTo(5), 2));
  expect(idOf(upTo(5), 1)).not.toBe(idOf(upTo(9), 1));
});

test('the first policy that fits decides; without one, the approvals of the server apply', () => {
  const spec = specOf({ match: { tool: 'pay_*' }, decision: 'allow' }, { match: {}, decision: 'deny' });
  expect(decideCall(spec, tool(), {})).toEqual({ decision: 'allow' });
  expect(decideCall(specOf(), tool(), {})).toEqual({ decision: 'ask' });
  expect(decideCall(specOf(), tool({ approval: false }), {})).toEqual({ decision: 'allow' });
});

test('a policy cannot drop an approval that the operator requires, but may say who gives it', () => {
  const policy: DecisionPolicy = {
    match: {},
    decision: 'allow',
    approvers: { subjects: ['bob'] },
    exclude_requester: true,
    quorum: 2,
  };
  expect(decideCall(specOf(policy), tool({ isFloor: true }), {})).toEqual({
    decision: 'ask',
    policy: {
      id: expect.any(String),
      approvers: { subjects: ['bob'], roles: [] },
      excludeRequester: true,
      quorum: 2,
      onExpiry: 'deny',
    },
  });
});

test('a condition that cannot be evaluated never lets a call run', () => {
  const match = { arguments: { '/text': { pattern: '^(a+)+$' } } };
  const args = { text: `${'a'.repeat(40)}b` };
  expect(decideCall(specOf({ match, decision: 'allow' }), tool({ approval: false }), args).decision).toBe('ask');
  expect(decideCall(specOf({ match, decision: 'deny' }), tool({ approval: false }), args).decision).toBe('deny');
});

test('the conditions for one call have a limit together: beyond it, a person is asked', () => {
  // Each takes the time that one condition may take; the last one would not fit.
  const costly = Array.from({ length: 40 }, (_, i) => [`/text/${i}`, { pattern: `^(a+)+${i}$` }] as const);
  const match = { arguments: Object.fromEntries([...costly, ['/other', { const: 1 }]]) };
  const args = { text: costly.map(() => `${'a'.repeat(40)}b`), other: 2 };
  const used = cpuStopwatch();
  expect(decideCall(specOf({ match, decision: 'allow' }), tool({ approval: false }), args).decision).toBe('ask');
  expect(used()).toBeLessThan(300);
});

test('the first call of a process is decided like the next one: compiling conditions takes none of that time', () => {
  const args = { id: 'y' };
  // Costly to compile, and not to evaluate.
  const parts = Array.from({ length: 25 }, (_, i) => ({ minLength: 0, maxLength: 100 + i }));
  const deny = Array.from({ length: 99 }, (_, i) => ({
    match: { arguments: { '/id': { allOf: [...parts, { const: `first ${i}` }] } } },
    decision: 'deny' as const,
  }));
  const allow = { match: { arguments: { '/id': { const: 'y' } } }, decision: 'allow' as const };
  const spec: AgentSpec = { model: { name: 'm' }, config: { decision_policies: [...deny, allow] } };
  const calls = [1, 2].map(() => decideCall(spec, tool({ approval: true }), args).decision);
  expect(calls).toEqual(['allow', 'allow']);
});

test('a policy may be for tools that are not annotated', () => {
  const spec = specOf({ match: { annotations: '@unannotated' }, decision: 'deny' });
  expect(decideCall(spec, { ...tool(), annotation: '@unannotated' }, {}).decision).toBe('deny');
});

const INLINE = { type: 'inline', name: 'bank', url: 'https://mcp.example.com/' } as const;
const unannotated = (name: string, approval = false): AgentTool => ({
  ...tool({ approval }),
  info: { type: 'mcp', serverId: 's', serverName: 'bank', name },
  annotation: '@unannotated',
});

test('agents that act in code may ask about all tools that are not of the system', () => {
  const spec = { ...specOf(), code_actions: { approvals: { tool: 'ask' as const } } };
  const unasked = tool({ approval: false });
  expect(decideCall(spec, unasked, {})).toEqual({ decision: 'ask' });
  expect(mayAsk(spec, unasked)).toBe(true);
  expect(unaskedWarnings(spec, INLINE, [unannotated('pay')])).toEqual([]);
  const system = { type: 'system' as const, name: 'list_code_tools' };
  expect(decideCall(spec, { ...unasked, info: system }, {})).toEqual({ decision: 'allow' });
  const policies: DecisionPolicy[] = [{ match: {}, decision: 'allow' }];
  expect(decideCall({ ...spec, config: { decision_policies: policies } }, unasked, {})).toEqual({ decision: 'allow' });
  const rules = { decide: () => ({ decision: 'allow' as const, isOfAgent: true }) };
  expect(decideCall(spec, unasked, {}, rules)).toEqual({ decision: 'allow' });
});

test('tools of an inline server that run unasked are a warning, unless the agent says so or their calls ask', () => {
  const tools = [unannotated('pay'), unannotated('refund'), unannotated('close', true), tool({ approval: false })];
  const warning = (names: string) => [
    `tools without annotations run without an approval: ${names}; add "@unannotated" to require_approval_for_tools, or ` +
      'set it to [] if none should ask',
  ];
  const none = specOf();
  expect(unaskedWarnings(none, INLINE, tools)).toEqual(warning('pay, refund'));
  expect(unaskedWarnings(none, { ...INLINE, require_approval_for_tools: [] }, tools)).toEqual([]);
  expect(unaskedWarnings(none, { type: 'truefoundry-mcp-registry', name: 'bank' }, tools)).toEqual([]);
  const policies: DecisionPolicy[] = [
    { match: { arguments: { '': {} } }, decision: 'ask' },
    { match: { tool: 'refund' }, decision: 'ask' },
    { match: { tool: 'close' }, decision: 'allow' },
  ];
  expect(unaskedWarnings(specOf(...policies), INLINE, tools)).toEqual(warning('pay, close'));
});

test('such a warning names ten tools, in 64 characters each', () => {
  const names = Array.from({ length: 12 }, (_, i) => `${i}${'x'.repeat(100)}`);
  const [warning] = unaskedWarnings(
    specOf(),
    INLINE,
    names.map((name) => unannotated(name)),
  );
  expect(warning).toContain(
    `: ${names
      .slice(0, 10)
      .map((name) => name.slice(0, 64))
      .join(', ')}, 2 more; `,
  );
});

test('wildcards are compared in linear time', () => {
  const cases: [string, string, boolean][] = [
    ['*', '', true],
    ['a*c?', 'abbcd', true],
    ['a*c?', 'abbc', false],
    ['?', '', false],
    ['a.c', 'abc', false],
    ['*b', 'abab', true],
  ];
  for (const [pattern, text, fits] of cases) expect(fitsWildcards(pattern, text), pattern).toBe(fits);
  expect(fitsWildcards(`${'*a'.repeat(120)}b`, 'a'.repeat(256))).toBe(false);
});

test('a policy for a server that fits none of its tools is a warning', () => {
  const matches = [
    { server: 'bank', tool: 'pay_*' },
    { server: 'bank', tool: 'refnd' },
    { server: 'shop', tool: 'refnd' },
    { tool: 'refnd' },
    { server: 'bank', annotations: '@write' as const },
  ];
  const spec = specOf(...matches.map((match) => ({ match, decision: 'allow' as const })));
  expect(decisionPolicyWarnings(spec, 'bank', [{ name: 'pay_bill' }, { name: 'refund' }])).toEqual([
    'config.decision_policies.1.match.tool: refnd fits no tool of the server',
  ]);
});

test('rules that match replace what happens without a policy, but not what the operator requires', () => {
  const ruledBy = (decision: Decision['decision'], isOfAgent = false) => ({ decide: () => ({ decision, isOfAgent }) });
  const none = { decide: () => undefined };
  const decide = (run: Parameters<typeof tool>[0], rules: Pick<CallRules, 'decide'>, ...policies: DecisionPolicy[]) =>
    decideCall(specOf(...policies), tool(run), {}, rules).decision;
  expect(decide({}, none)).toBe('ask');
  expect(decide({}, ruledBy('allow'))).toBe('allow');
  expect(decide({ approval: false }, ruledBy('ask'))).toBe('ask');
  expect(decide({ approval: false }, ruledBy('deny'))).toBe('deny');
  expect(decide({ isFloor: true }, ruledBy('allow', true))).toBe('ask');
  expect(decide({ isDenied: true }, ruledBy('allow'))).toBe('deny');
  expect(decide({ isDenied: true }, ruledBy('allow', true))).toBe('allow');
  expect(decide({ isDenied: true }, none)).toBe('deny');
});

test('rules make the decision of a policy stricter, and who decides is the policy', () => {
  const ruledBy = (decision: Decision['decision']) => ({ decide: () => ({ decision, isOfAgent: false }) });
  const policy = (decision: DecisionPolicy['decision'], more: Partial<DecisionPolicy> = {}): DecisionPolicy => {
    return { match: {}, decision, ...more };
  };
  const decide = (of: DecisionPolicy, decision: Decision['decision']) =>
    decideCall(specOf(of), tool(), {}, ruledBy(decision));
  expect(decide(policy('ask', { quorum: 2 }), 'allow')).toMatchObject({ decision: 'ask', policy: { quorum: 2 } });
  expect(decide(policy('ask', { quorum: 2 }), 'ask')).toMatchObject({ decision: 'ask', policy: { quorum: 2 } });
  expect(decide(policy('ask'), 'deny')).toEqual({ decision: 'deny' });
  expect(decide(policy('deny'), 'allow')).toEqual({ decision: 'deny' });
  expect(decide(policy('allow'), 'ask')).toMatchObject({ decision: 'ask', policy: { quorum: 1 } });
  expect(decide(policy('allow'), 'allow')).toEqual({ decision: 'allow' });
});

test.each<
  [string, boolean, { policies?: DecisionPolicy[]; run?: Parameters<typeof tool>[0]; ruled?: Decision['decision'] }]
>([
  ['by default', true, {}],
  ['without an approval', false, { run: { approval: false } }],
  ['by a rule that allows', false, { ruled: 'allow' }],
  ['by a rule that asks', true, { run: { approval: false }, ruled: 'ask' }],
  ['by a rule that denies', false, { ruled: 'deny' }],
  ['with a policy that allows', false, { policies: [{ match: {}, decision: 'allow' }] }],
  ['with a policy that denies', false, { policies: [{ match: {}, decision: 'deny' }] }],
  ['with a policy that asks', true, { run: { approval: false }, policies: [{ match: {}, decision: 'ask' }] }],
  [
    'with a policy for others',
    false,
    { run: { approval: false }, policies: [{ match: { tool: 'x' }, decision: 'ask' }] },
  ],
  ['if some arguments ask', true, { run: { approval: false }, policies: [{ match: SOME, decision: 'ask' }] }],
  ['if some arguments are allowed', true, { policies: [{ match: SOME, decision: 'allow' }] }],
  ['if some arguments are denied', true, { policies: [{ match: SOME, decision: 'deny' }] }],
  ['what the operator requires', true, { run: { isFloor: true }, policies: [{ match: {}, decision: 'allow' }] }],
])('whether a call may ask, %s: %s', (_, expected, { policies = [], run, ruled }) => {
  const rules = ruled && { decide: () => ({ decision: ruled, isOfAgent: true }) };
  expect(mayAsk(specOf(...policies), tool(run), rules)).toBe(expected);
});
