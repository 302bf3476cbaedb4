import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient, type EventReader } from '../support/api-client.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';

/** Policies of an agent: who may decide on its calls, how many must agree, and what happens without a decision. */

let server: TestServer;
let clients: Record<'root' | 'boss' | 'chief' | 'ann', ApiClient>;
beforeAll(async () => {
  server = await startTestServer({
    env: {
      EVERTURN_API_KEYS: 'root:admin=key-of-root,boss:approver=key-of-boss,chief:approver=key-of-chief,ann=key-of-ann',
    },
    mcp: {
      tools: [
        {
          name: 'pay',
          annotations: { destructiveHint: true },
          inputSchema: { type: 'object', properties: { amount: { type: 'number' } }, required: ['amount'] },
          handler: ({ amount }) => `paid ${String(amount)}`,
        },
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
      ],
    },
  });
  const as = (name: string) => new ApiClient(server.server.url, `key-of-${name}`);
  clients = { root: as('root'), boss: as('boss'), chief: as('chief'), ann: as('ann') };
});
afterAll(() => server.stop());

type Policies = NonNullable<AgentSpec['config']>['decision_policies'];

interface Asked {
  reader: EventReader;
  answer: (who: keyof typeof clients, status: 'allow' | 'deny', edit?: object) => Promise<[number, unknown]>;
}

let agents = 0;

/** A turn of ann's, whose model pays an amount; with the policies of its agent. */
async function paying(amount: number, policies: Policies): Promise<Asked> {
  const agent = `payer-${agents++}`;
  const config = { pause: 'wait' as const, decision_policies: policies };
  await clients.root.putAgent(agent, { model: { name: agent }, ...onTestServer, config });
  server.model.script(agent, use({ name: 'pay', args: { amount }, id: 'p1' }), say('Done.'));
  const sessionId = await clients.ann.createSession(agent);
  const approval = (status: string, edit?: object) => ({
    input: [
      { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'p1', approval: { status, arguments: edit } },
    ],
  });
  return {
    reader: clients.ann.turn(sessionId, 'pay'),
    answer: async (who, status, edit) => {
      const path = `/v1/agents/sessions/${sessionId}/actions`;
      const { status: code, body } = await clients[who].send('POST', path, approval(status, edit));
      return [code, body.error?.code ?? body.data.waiting];
    },
  };
}

const outcomes = async ({ reader }: Asked) =>
  (await reader.done).flatMap((one) => (one.type === 'tool.response' ? [[one.outcome, one.content]] : []));

/** The decisions and their deciders. */
const decisions = async ({ reader }: Asked) =>
  (await reader.done).flatMap((one) =>
    one.type === 'tool.decided' ? [`${one.decision} ${one.by?.subject_slug ?? 'time'} ${one.remaining}`] : [],
  );

const small = { arguments: { '/amount': { type: 'number', maximum: 100 } } };

test('small amounts are paid at once, larger ones need two approvers, and huge ones are never paid', async () => {
  const policies: Policies = [
    { match: { tool: 'p*', ...small }, decision: 'allow' },
    { match: { arguments: { '/amount': { type: 'number', minimum: 1_000_000 } } }, decision: 'deny' },
    { match: { annotations: '@destructive' }, decision: 'ask', quorum: 2, approvers: { roles: ['approver', 'admin'] } },
  ];
  expect(await outcomes(await paying(50, policies))).toEqual([['succeeded', 'paid 50']]);
  expect(await outcomes(await paying(2_000_000, policies))).toEqual([['failed', expect.stringContaining('policy')]]);

  const asked = await paying(5_000, policies);
  const required = await asked.reader.type('tool.approval_required');
  expect(required.tool_calls).toMatchObject([{ policy: { quorum: 2, approvers: { roles: ['approver', 'admin'] } } }]);
  expect(await asked.answer('ann', 'allow')).toEqual([403, 'not_an_approver']);
  expect(await asked.answer('boss', 'allow')).toEqual([200, ['p1']]);
  expect(await asked.answer('boss', 'allow')).toEqual([200, ['p1']]);
  expect(await asked.answer('boss', 'deny')).toEqual([409, 'already_decided']);
  expect(await asked.answer('root', 'allow')).toEqual([200, []]);
  expect(await outcomes(asked)).toEqual([['succeeded', 'paid 5000']]);
  expect(await decisions(asked)).toEqual(['allow boss 1', 'allow root 0']);
});

test('an edit is a new proposal, which others have to allow, and no way around a policy', async () => {
  const byTwo = { decision: 'ask' as const, quorum: 2, approvers: { roles: ['approver' as const] } };
  const asked = await paying(5_000, [
    { match: { arguments: { '/amount': { type: 'number', maximum: 10_000 } } }, ...byTwo },
    { match: { tool: '*' }, decision: 'deny' },
  ]);
  const required = await asked.reader.type('tool.approval_required');
  expect(required.tool_calls).toMatchObject([{ policy: { quorum: 2, may_edit_arguments: true } }]);
  expect(await asked.answer('root', 'allow', { amount: 4_000 })).toEqual([403, 'not_an_approver']);
  expect(await asked.answer('boss', 'allow', { amount: 50_000 })).toEqual([422, 'edit_not_allowed']);
  expect(await asked.answer('boss', 'allow', { amount: 'all' })).toEqual([422, 'invalid_arguments']);
  expect(await asked.answer('chief', 'allow')).toEqual([200, ['p1']]);
  expect(await asked.answer('boss', 'allow', { amount: 4_000 })).toEqual([200, ['p1']]);
  expect(await asked.answer('boss', 'allow', { amount: 3_000 })).toEqual([409, 'already_decided']);
  expect(await asked.answer('chief', 'allow', { amount: 4_000 })).toEqual([200, []]);
  expect(await outcomes(asked)).toEqual([['succeeded', 'paid 4000']]);
  expect(await decisions(asked)).toEqual(['allow chief 1', 'allow boss 1', 'allow chief 0']);
  const [, ...edits] = (await asked.reader.done).filter(({ type }) => type === 'tool.decided');
  expect(edits).toMatchObject([{ arguments: { amount: 4_000 } }, { arguments: { amount: 4_000 } }]);

  const fixed = await paying(5_000, [{ match: { tool: '*' }, decision: 'ask', may_edit_arguments: false }]);
  await fixed.reader.type('turn.paused');
  expect(await fixed.answer('ann', 'allow', { amount: 1 })).toEqual([422, 'edit_not_allowed']);
  expect(await fixed.answer('ann', 'allow')).toEqual([200, []]);
  expect(await outcomes(fixed)).toEqual([['succeeded', 'paid 5000']]);
});

test.each([
  ['deny', [['expired', expect.stringContaining('not approved in time')]], 'done'],
  ['allow', [['succeeded', 'paid 7']], 'done'],
  ['end', [['expired', expect.anything()]], 'error'],
] as const)('an approval that expires has its default: %s', async (default_, expected, status) => {
  const asked = await paying(7, [
    { match: { tool: '*' }, decision: 'ask', expires_in_seconds: 1, on_expiry: default_ },
  ]);
  expect(await outcomes(asked)).toEqual(expected);
  expect(await decisions(asked)).toEqual(['expired time 0']);
  expect(await asked.reader.end()).toMatchObject({ status });
});

test('an escalation widens who may decide', async () => {
  const [subjects, to] = [['boss'], { subjects: ['chief'] }];
  const asked = await paying(7, [
    { match: { tool: '*' }, decision: 'ask', approvers: { subjects }, escalate: { after_seconds: 1, to } },
  ]);
  await asked.reader.type('turn.paused');
  expect(await asked.answer('root', 'allow')).toEqual([403, 'not_an_approver']);
  await asked.reader.next((one) => one.type === 'tool.decided' && one.decision === 'escalated');
  expect(await asked.answer('chief', 'allow')).toEqual([200, []]);
  expect(await decisions(asked)).toEqual(['escalated time 1', 'allow chief 0']);
});

test('an agent whose policies cannot be carried out is rejected', async () => {
  const rejected: [NonNullable<AgentSpec['config']>, string][] = [
    [
      { decision_policies: [{ match: { tool: '*' }, decision: 'ask', quorum: 2 }] },
      'config.decision_policies.0.quorum',
    ],
    [
      { decision_policies: [{ match: { arguments: { '/a': { type: 'nothing' } } }, decision: 'deny' }] },
      'config.decision_policies.0.match.arguments',
    ],
  ];
  for (const [config, param] of rejected) {
    const { status, body } = await clients.root.send('PUT', '/v1/agents/broken', { model: { name: 'm' }, config });
    expect([status, body.error.code, body.error.param]).toEqual([422, 'invalid_agent', param]);
  }
});
