import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ActionResource } from '../../src/api/sessions/wire/actions.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { ActionReader } from '../support/action-reader.ts';
import { ApiClient, type EventReader } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { OidcIssuer } from '../support/oidc-issuer.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** Approvers that a policy names, which may not read the session: what they see of it, and what they may do. */

let idp: OidcIssuer;
let server: TestServer;
/** The folder of `EVERTURN_AGENTS`. */
let folder: string;
const logged: string[] = [];
beforeAll(async () => {
  idp = await OidcIssuer.start();
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-agents-'));
  await writeFile(path.join(folder, 'filed.json'), JSON.stringify(policyOf({ approvers: { subjects: ['zoe'] } })));
  server = await startTestServer({
    log: createLogger({ logLevel: 'warn' }, { write: (line) => void logged.push(line) }),
    env: {
      EVERTURN_AGENTS: folder,
      EVERTURN_OIDC_ISSUER: idp.url,
      EVERTURN_OIDC_AUDIENCE: 'everturn',
      EVERTURN_API_KEYS:
        'root:admin=key-of-root,boss=key-of-boss,chief=key-of-chief,ann=key-of-ann,lead:approver=key-of-lead',
    },
    mcp: {
      tools: [
        { name: 'pay', annotations: { destructiveHint: true }, handler: ({ amount }) => `paid ${String(amount)}` },
      ],
    },
  });
});
afterAll(async () => {
  await server.stop();
  await idp.stop();
  await rm(folder, { recursive: true });
});

const as = (credential: string) => new ApiClient(server.server.url, credential);
const keyOf = (name: string) => as(`key-of-${name}`);

type Policies = NonNullable<NonNullable<AgentSpec['config']>['decision_policies']>;

interface Asked {
  agent: string;
  sessionId: string;
  reader: EventReader;
}

let agents = 0;

/** A turn of ann's, whose model pays, once for each of these amounts, in a turn that waits. */
async function paying(amounts: number[], policies: Policies, more: Record<string, unknown> = {}): Promise<Asked> {
  const agent = `approved-${agents++}`;
  const config = { pause: 'wait' as const, decision_policies: policies };
  await keyOf('root').putAgent(agent, { model: { name: agent }, ...onTestServer, config });
  server.model.script(
    agent,
    use(...amounts.map((amount) => ({ name: 'pay', args: { amount, ...more }, id: `p${amount}` }))),
    say('Done.'),
  );
  const sessionId = await keyOf('ann').createSession(agent);
  const reader = keyOf('ann').turn(sessionId, 'pay');
  await reader.type('turn.paused');
  return { agent, sessionId, reader };
}

/** The ids of the calls of an agent that the inbox of a caller has. */
async function inbox(client: ApiClient, agent: string): Promise<string[]> {
  const actions = await client.list<ActionResource>(`/v1/agents/actions?agent_name=${agent}`);
  return actions.map((action) => action.tool_call_id ?? '').toSorted();
}

async function answer(
  client: ApiClient,
  sessionId: string,
  ids: string[],
  { status = 'allow', threadId = 'main' }: { status?: 'allow' | 'deny'; threadId?: string } = {},
): Promise<[status: number, result: unknown]> {
  const input = ids.map((id) => ({
    type: 'user.tool_approval',
    thread_id: threadId,
    tool_call_id: id,
    approval: { status },
  }));
  const { status: code, body } = await client.send('POST', `/v1/agents/sessions/${sessionId}/actions`, { input });
  return [code, code === 200 ? body.data : [body.error.code, body.error.message]];
}

const paid = async ({ reader }: Asked) =>
  (await reader.done)
    .flatMap((one) => (one.type === 'tool.response' ? [`${one.tool_call_id} ${one.outcome}`] : []))
    .toSorted();

const amountIs = (amount: number) => ({ arguments: { '/amount': { const: amount } } });

test('a subject that a policy names decides its call, and sees nothing else of the session', async () => {
  const asked = await paying(
    [1, 2, 3],
    [
      { match: amountIs(1), decision: 'ask', approvers: { subjects: ['boss'] } },
      { match: amountIs(2), decision: 'ask', approvers: { subjects: ['chief'] } },
      { match: amountIs(3), decision: 'ask', approvers: { subjects: ['boss', 'chief'] }, quorum: 2 },
    ],
  );
  const { agent, sessionId } = asked;
  const [boss, chief, lead] = [keyOf('boss'), keyOf('chief'), keyOf('lead')];
  const stream = await ActionReader.open(server.server.url, 'key-of-boss', 0);
  await eventually(async () => expect(await inbox(boss, agent)).toEqual(['p1', 'p3']));
  expect(await inbox(chief, agent)).toEqual(['p2', 'p3']);
  expect([await inbox(lead, agent), await inbox(keyOf('ann'), agent)]).toEqual([[], []]);
  const action = (await boss.list<ActionResource>(`/v1/agents/actions?agent_name=${agent}`)).find(
    ({ tool_call_id: id }) => id === 'p1',
  );
  expect(action).toMatchObject({
    session_id: sessionId,
    tool: { name: 'pay' },
    arguments: { amount: 1 },
    policy: { quorum: 1 },
  });
  const shown = (await stream.next(2)).map(({ event }) => event.action).filter((one) => one.session_id === sessionId);
  expect(shown.map((one) => one.tool_call_id ?? '').toSorted()).toEqual(['p1', 'p3']);

  // All else of the session does not exist for it, and neither do the calls of others.
  const url = `/v1/agents/sessions/${sessionId}`;
  for (const [method, route, body] of [
    ['GET', url],
    ['GET', `${url}/turns`],
    ['GET', `${url}/events`],
    ['GET', `${url}/turns/${await asked.reader.turnId()}`],
    [
      'POST',
      `${url}/turns`,
      { input: [{ type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'p1', approval: { status: 'allow' } }] },
    ],
    ['POST', `${url}/cancel`, {}],
    ['DELETE', url],
  ] as const) {
    expect([method, route, (await boss.send(method, route, body)).status]).toEqual([method, route, 404]);
  }
  const [, unknown] = await answer(boss, sessionId, ['p9']);
  const [code, hidden] = await answer(boss, sessionId, ['p2']);
  expect([code, hidden]).toEqual([422, (unknown as string[]).map((text) => text.replace('p9', 'p2'))]);
  expect((await answer(boss, sessionId, ['p1', 'p2']))[0]).toBe(422);

  expect(await answer(boss, sessionId, ['p1'])).toEqual([200, { accepted: ['p1'], waiting: ['p3'] }]);
  const again = { accepted: ['p1'], waiting: ['p3'], repeated: ['p1'] };
  expect(await answer(boss, sessionId, ['p1'])).toEqual([200, again]);
  expect((await answer(boss, sessionId, ['p1'], { status: 'deny' }))[0]).toBe(409);
  expect(await answer(boss, sessionId, ['p3'])).toEqual([200, { accepted: ['p3'], waiting: ['p3'] }]);
  const second = { accepted: ['p3'], waiting: ['p3'], repeated: ['p3'] };
  expect(await answer(boss, sessionId, ['p3'])).toEqual([200, second]);
  expect(await answer(chief, sessionId, ['p3', 'p2'])).toEqual([200, { accepted: ['p3', 'p2'], waiting: [] }]);
  expect(await paid(asked)).toEqual(['p1 succeeded', 'p2 succeeded', 'p3 succeeded']);
  // The response to the first request may have been lost.
  expect(await answer(boss, sessionId, ['p1'])).toEqual([200, { accepted: ['p1'], waiting: [], repeated: ['p1'] }]);
});

test('a named subject reads all arguments of its call, however long they are, and others get 404', async () => {
  const policy: Policies[0] = {
    match: { tool: '*' },
    decision: 'ask',
    approvers: { subjects: ['boss', 'ann'] },
    exclude_requester: true,
  };
  const asked = await paying([1], [policy], { purpose: 'x'.repeat(100_000) });
  const [boss, chief, ann] = [keyOf('boss'), keyOf('chief'), keyOf('ann')];
  const list = () => boss.list<ActionResource>(`/v1/agents/actions?agent_name=${asked.agent}`);
  const [action] = await eventually(async () => {
    const actions = await list();
    expect(actions).toHaveLength(1);
    return actions;
  });
  expect(action?.arguments).toBeNull();
  const read = (client: ApiClient, id = action?.id) => client.send('GET', `/v1/agents/actions/${id}`);
  expect(await read(boss)).toMatchObject({
    status: 200,
    body: { data: { ...action, arguments: { amount: 1, purpose: 'x'.repeat(100_000) } } },
  });
  for (const response of [await read(chief), await read(ann), await read(boss, 'act_0')]) {
    expect(response).toMatchObject({ status: 404, body: { error: { code: 'action_not_found' } } });
  }
});

test('a stranger to the session gets 404, also with the id of a call that others decide', async () => {
  const asked = await paying([1], [{ match: { tool: '*' }, decision: 'ask', approvers: { subjects: ['boss'] } }]);
  await eventually(async () => expect(await inbox(keyOf('boss'), asked.agent)).toEqual(['p1']));
  const [code, error] = await answer(keyOf('chief'), asked.sessionId, ['p1']);
  expect([code, (error as string[])[0]]).toEqual([404, 'session_not_found']);
  expect((await answer(keyOf('lead'), asked.sessionId, ['p1']))[0]).toBe(403);
  expect((await answer(keyOf('boss'), asked.sessionId, ['p1'], { status: 'deny' }))[0]).toBe(200);
  expect(await paid(asked)).toEqual(['p1 denied']);
});

test('a subject or a role to which a call is escalated decides it from then on', async () => {
  const approvers = { subjects: ['root'] };
  const escalatingAfter = (seconds: number): Policies =>
    [{ subjects: ['chief'] }, { roles: ['user' as const] }].map((to, index) => ({
      match: amountIs(index + 1),
      decision: 'ask',
      approvers,
      escalate: { after_seconds: seconds, to },
    }));
  // Nothing of this turn is escalated, however long the test takes.
  const early = await paying([1, 2], escalatingAfter(3_600));
  await eventually(async () => expect(await inbox(keyOf('root'), early.agent)).toEqual(['p1', 'p2']));
  expect([
    (await answer(keyOf('chief'), early.sessionId, ['p1']))[0],
    (await answer(keyOf('boss'), early.sessionId, ['p2']))[0],
  ]).toEqual([404, 404]);
  expect((await answer(keyOf('root'), early.sessionId, ['p1', 'p2'], { status: 'deny' }))[0]).toBe(200);
  expect(await paid(early)).toEqual(['p1 denied', 'p2 denied']);

  const asked = await paying([1, 2], escalatingAfter(1));
  await eventually(async () => expect(await inbox(keyOf('chief'), asked.agent)).toEqual(['p1', 'p2']));
  expect(await inbox(keyOf('boss'), asked.agent)).toEqual(['p2']);
  expect((await answer(keyOf('boss'), asked.sessionId, ['p1']))[0]).toBe(422);
  expect(await answer(keyOf('boss'), asked.sessionId, ['p2'])).toEqual([200, { accepted: ['p2'], waiting: [] }]);
  expect(await answer(keyOf('chief'), asked.sessionId, ['p1'])).toEqual([200, { accepted: ['p1'], waiting: [] }]);
  expect(await paid(asked)).toEqual(['p1 succeeded', 'p2 succeeded']);
});

test('a bearer is identified by the id of its token, and not by the name that it has chosen', async () => {
  const boss = as(await idp.token({ sub: 'u-7', preferred_username: 'ceo' }));
  const impostor = as(await idp.token({ sub: 'u-8', preferred_username: `${idp.url}#u-7` }));
  const namesake = as(await idp.token({ sub: 'u-9', preferred_username: 'boss' }));
  const asked = await paying(
    [1],
    [{ match: { tool: '*' }, decision: 'ask', approvers: { subjects: [`${idp.url}#u-7`, 'boss'] } }],
  );
  await eventually(async () => expect(await inbox(boss, asked.agent)).toEqual(['p1']));
  for (const other of [impostor, namesake]) {
    expect(await inbox(other, asked.agent)).toEqual([]);
    expect((await answer(other, asked.sessionId, ['p1']))[0]).toBe(404);
  }
  expect(await answer(boss, asked.sessionId, ['p1'])).toEqual([200, { accepted: ['p1'], waiting: [] }]);
  expect(await paid(asked)).toEqual(['p1 succeeded']);
});

test('the calls of a turn that has ended are decided by those whom their policies name', async () => {
  const [root, clerk] = ['ends-root', 'ends-clerk'];
  const decisionPolicies: Policies = [
    { match: amountIs(1), decision: 'ask', approvers: { subjects: ['boss'] } },
    { match: amountIs(2), decision: 'ask', approvers: { roles: ['approver'] } },
    { match: amountIs(3), decision: 'ask', approvers: { subjects: ['chief'] } },
    { match: amountIs(4), decision: 'ask', approvers: { roles: ['user', 'admin'] }, exclude_requester: true },
  ];
  await keyOf('root').putAgent(clerk, {
    model: { name: clerk },
    ...onTestServer,
    config: { pause: 'wait', decision_policies: decisionPolicies },
  });
  await keyOf('root').putAgent(root, { model: { name: root }, agents: [clerk] });
  server.model.script(
    root,
    use({ name: 'create_sub_agent', id: 's1', args: { name: 'clerk', input: 'pay', agent: clerk } }),
    say('Paid.'),
  );
  server.model.script(
    clerk,
    use(...[1, 2, 3].map((amount) => ({ name: 'pay', args: { amount }, id: `p${amount}` }))),
    use({ name: 'pay', args: { amount: 4 }, id: 'p4' }),
    say('Paid them.'),
  );
  const sessionId = await keyOf('ann').createSession(root);
  const first = keyOf('ann').turn(sessionId, 'pay');
  await first.done;
  const threadId = (await first.type('tool.approval_required')).thread_id;
  const [boss, chief, lead] = [keyOf('boss'), keyOf('chief'), keyOf('lead')];
  await eventually(async () => expect(await inbox(boss, root)).toEqual(['p1']));
  const give = (client: ApiClient, id: string, status: 'allow' | 'deny' = 'allow') =>
    answer(client, sessionId, [id], { threadId, status });
  expect((await give(keyOf('ann'), 'p1', 'deny'))[0]).toBe(403);
  expect((await give(boss, 'p3'))[0]).toBe(422);
  expect((await give(as(await idp.token({ sub: 'x' })), 'p1'))[0]).toBe(404);
  expect(await give(boss, 'p1')).toEqual([200, { accepted: ['p1'], waiting: [] }]);
  expect(await give(lead, 'p2')).toEqual([200, { accepted: ['p2'], waiting: ['p3'] }]);
  expect(await give(chief, 'p3')).toEqual([200, { accepted: ['p3'], waiting: [] }]);
  const { data: turns } = await keyOf('ann').get(`/v1/agents/sessions/${sessionId}/turns`);
  // An answer does not make its author a requester: the author of the newest message is still ann.
  await keyOf('ann').subscribe(sessionId, turns[0].id).done;
  await eventually(async () => expect(await inbox(boss, root)).toEqual(['p4']));
  expect(await inbox(keyOf('ann'), root)).toEqual([]);
  expect((await give(keyOf('ann'), 'p4'))[0]).toBe(403);
  expect((await give(keyOf('ann'), 'p4', 'deny'))[0]).toBe(403);
  expect(await give(chief, 'p4')).toEqual([200, { accepted: ['p4'], waiting: [] }]);
  const { data: all } = await keyOf('ann').get(`/v1/agents/sessions/${sessionId}/turns`);
  const second = keyOf('ann').subscribe(sessionId, all[0].id);
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
  const outcomes = second.frames.flatMap((frame) =>
    frame.type === 'tool.response' && frame.thread_id === threadId ? [frame.outcome] : [],
  );
  expect(outcomes).toEqual(['succeeded']);
});

test('a policy may exclude those who have asked for the call, also from the inbox', async () => {
  const approvers = { roles: ['user' as const], subjects: ['ann'] };
  const asked = await paying([1], [{ match: { tool: '*' }, decision: 'ask', approvers, exclude_requester: true }]);
  const stream = await ActionReader.open(server.server.url, 'key-of-ann', 0);
  const required = await asked.reader.type('tool.approval_required');
  expect(required.tool_calls).toMatchObject([{ policy: { exclude_requester: true } }]);
  await eventually(async () => expect(await inbox(keyOf('boss'), asked.agent)).toEqual(['p1']));
  expect(await inbox(keyOf('ann'), asked.agent)).toEqual([]);
  for (const status of ['allow', 'deny'] as const) {
    const [code, error] = await answer(keyOf('ann'), asked.sessionId, ['p1'], { status });
    expect([code, error]).toEqual([403, ['not_an_approver', expect.stringContaining('have asked for it')]]);
  }
  expect(await answer(keyOf('boss'), asked.sessionId, ['p1'])).toEqual([200, { accepted: ['p1'], waiting: [] }]);
  expect(await paid(asked)).toEqual(['p1 succeeded']);
  expect(stream.received.filter(({ event }) => event.action.session_id === asked.sessionId)).toEqual([]);
});

const policyOf = (policy: Partial<Policies[number]>, pause: 'wait' | 'end' = 'wait') => ({
  model: { name: 'm' },
  config: { pause, decision_policies: [{ match: { tool: '*' }, decision: 'ask' as const, ...policy }] },
});

test('notes for an admin on the policies of an agent are in its answers, and once in the log', async () => {
  const [root, url] = [keyOf('root'), '/v1/agents/warned'];
  const warnings = ['config.decision_policies.0.approvers.subjects.1: no working API key has the name zed'];
  const put = await root.send('PUT', url, policyOf({ approvers: { subjects: ['boss', 'zed'] } }));
  expect([put.status, put.body.data.warnings]).toEqual([200, warnings]);
  expect((await keyOf('ann').get(url)).data.warnings).toEqual(warnings);
  expect((await root.get(url)).data.warnings).toEqual(warnings);
  expect(logged.filter((line) => line.includes('has the name zed'))).toHaveLength(1);
  expect(logged.filter((line) => line.includes('has the name zoe') && line.includes('filed'))).toHaveLength(1);
  await root.putAgent('warned', policyOf({ approvers: { subjects: ['boss'] } }));
  expect((await root.get(url)).data).not.toHaveProperty('warnings');
});

interface Answered {
  status: number;
  body: { error?: { code: string; param: string } };
}

test('a subject that no caller can have is refused, and so are the subjects of others in what a user has written', async () => {
  const place = (param: string) => [422, 'invalid_agent', param];
  const of = ({ status, body }: Answered) => [status, body.error?.code, body.error?.param];
  const [root, ann] = [keyOf('root'), keyOf('ann')];
  const other = policyOf({ approvers: { subjects: ['ann', 'https://other.example#u'] } });
  expect(of(await root.send('PUT', '/v1/agents/refused', other))).toEqual(
    place('config.decision_policies.0.approvers.subjects.1'),
  );

  const foreign = policyOf({ approvers: { subjects: ['ann', 'boss'] } });
  const own = policyOf({ approvers: { subjects: ['ann'], roles: ['user'] } });
  const drafts = '/v1/agents/draft-sessions';
  const subject = 'config.decision_policies.0.approvers.subjects.1';
  expect(of(await ann.send('POST', drafts, { agent_spec: foreign }))).toEqual(place(`agent_spec.${subject}`));
  expect((await root.send('POST', drafts, { agent_spec: foreign })).status).toBe(200);
  const draft = await ann.send('POST', drafts, { agent_spec: own });
  expect(draft.status).toBe(200);
  const patched = await ann.send('PATCH', `${drafts}/${draft.body.data.id}`, { agent_spec: foreign });
  expect(of(patched)).toEqual(place(`agent_spec.${subject}`));

  await root.putAgent('with-boss', foreign);
  const overridden = (overrides: object) => ({ agent: 'with-boss', overrides, messages: 'hi' });
  const session = await ann.send('POST', '/api/v2/sessions', overridden({ 'agent.instructions': 'Pay.' }));
  expect([session.status, JSON.stringify(session.body)]).toEqual([
    422,
    expect.stringContaining('only agents that admins have written'),
  ]);
  expect((await root.send('POST', '/api/v2/sessions', overridden({ 'agent.instructions': 'Pay.' }))).status).toBe(201);
  expect((await ann.send('POST', '/api/v2/sessions', overridden({}))).status).toBe(201);

  const run = { input: [{ type: 'message', role: 'user', content: [{ type: 'text', text: 'hi' }] }] };
  const changed = await ann.send('POST', '/v1/agents/with-boss/runs', { ...run, params: { instructions: ['Pay.'] } });
  expect([changed.status, JSON.stringify(changed.body)]).toEqual([
    422,
    expect.stringContaining('only agents that admins have written'),
  ]);
});
