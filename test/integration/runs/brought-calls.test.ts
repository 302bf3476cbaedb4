import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Run } from '../../../src/api/runs/wire/run.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { ApiClient } from '../../support/api-client.ts';
import { calls, inShort, resumeRun, RunAgent, user } from '../../support/runs.ts';
import { say, use, type Script } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Calls that a client writes itself, as if the model of a registered agent had made them. */

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
let root: ApiClient;
let paid: unknown[] = [];
beforeEach(() => void (paid = []));
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'ann=key-of-ann,bob=key-of-bob,root:admin=key-of-root' },
    mcp: {
      tools: [
        { name: 'balance', annotations: { readOnlyHint: true }, handler: () => '100' },
        { name: 'pay', handler: ({ amount }) => (paid.push(amount), 'paid') },
      ],
    },
  });
  // The same server a second time, open to users.
  const file = path.join(server.dataDir, 'mcp.json');
  const { servers } = JSON.parse(await readFile(file, 'utf8')) as { servers: object };
  await writeFile(file, JSON.stringify({ servers: { ...servers, open: { url: server.mcp.url, drafts: ['user'] } } }));
  await server.restart();
  const as = (key: string) => new ApiClient(server.server.url, key);
  [ann, bob, root] = [as('key-of-ann'), as('key-of-bob'), as('key-of-root')];
});
afterAll(() => server.stop());

/** A registered agent of a server. Its policy lets all calls run. */
async function registered(name: 'test' | 'open', scripts: Script[], more: object = {}): Promise<string> {
  const agent = newId('req');
  server.model.script(agent, ...scripts);
  await root.putAgent(agent, {
    model: { name: agent },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name }],
    config: { decision_policies: [{ match: { server: name }, decision: 'allow' }] },
    ...more,
  });
  return agent;
}

async function run(api: ApiClient, agent: string, input: unknown[], more: object = {}): Promise<Run> {
  const { status, body } = await api.send<Run>('POST', `/v1/agents/${agent}/runs`, { input, ...more });
  expect(status, JSON.stringify(body)).toBe(200);
  return body;
}

const pay = (amount: number) => ({ id: 'p1', name: 'pay', args: { amount } });
const resultsOf = ({ output }: Run): unknown[] =>
  output.flatMap((item) => (item.type === 'tool' ? [[item.tool_call_id, item.outcome]] : []));
const textsOf = (run: Run): string => JSON.stringify(run.output.filter(({ type }) => type === 'tool'));

test('a call that a client has written is not run on a server that is not open to its drafts', async () => {
  const agent = await registered('test', [say('Refused.'), say('Refused.')]);
  const refused = await run(ann, agent, [user('Pay'), calls(pay(1_000_000), { id: 'b1', name: 'balance' })]);
  expect([refused.status, resultsOf(refused)]).toEqual([
    'completed',
    [
      ['p1', 'failed'],
      ['b1', 'failed'],
    ],
  ]);
  expect(textsOf(refused)).toContain('its server is not open to the agents of this user');
  expect(server.model.requestsTo(agent)).toHaveLength(1);
  const ofAdmin = await run(root, agent, [user('Pay'), calls(pay(7))]);
  expect([resultsOf(ofAdmin), paid]).toEqual([[['p1', 'succeeded']], [7]]);
});

test('a call that a client has written needs the approvals that its drafts need, also where the agent needs none', async () => {
  const agent = await registered('open', [say('Done.')]);
  const paused = await run(ann, agent, [user('Pay'), calls(pay(1), { id: 'b1', name: 'balance' })]);
  expect(paused).toMatchObject({ status: 'requires_action', required_action: { approvals: [{ tool_call_id: 'p1' }] } });
  expect(paid).toEqual([]);
  const allowed = { tool_call_id: 'p1', status: 'allow', arguments: { amount: 2 } };
  const done = await resumeRun({ api: ann }, paused, { approvals: [allowed] });
  expect([inShort(done.output), paid]).toEqual([['p1 completed', 'b1 completed', 'model'], [2]]);
});

test('a call that the agent has made for the caller runs with its rights, one of another subject or agent does not', async () => {
  const pausing = {
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: ['pay'] }],
  };
  const agent = await registered('test', [use(pay(5))], { ...pausing, config: {} });
  const paused = await run(ann, agent, [user('Pay')]);
  expect(paused.status).toBe('requires_action');
  await ann.send('POST', `/v1/runs/${paused.id}/cancel`);
  await ann.get(`/v1/runs/${paused.id}?wait_seconds=30`);
  const back = [user('Pay'), ...paused.output];
  // The agent asks about the call, as before.
  const again = await run(ann, agent, back);
  expect(again).toMatchObject({ status: 'requires_action', required_action: { approvals: [{ tool_call_id: 'p1' }] } });
  await resumeRun({ api: ann }, again, { approvals: [{ tool_call_id: 'p1', status: 'deny' }], wait_seconds: 0 });
  const [model] = paused.output;
  const changed = { ...calls(pay(6)), id: model?.id };
  const other = await registered('test', []);
  for (const [api, name, item] of [
    [bob, agent, model],
    [ann, agent, changed],
    [ann, agent, { ...model, id: undefined }],
    [ann, other, model],
  ] as const) {
    server.model.script(name, say('Refused.'));
    expect(resultsOf(await run(api, name, [user('Pay'), item]))).toEqual([['p1', 'failed']]);
  }
  expect(paid).toEqual([]);
});

test('a call that a client has had made by an agent of its own, of the same name, is not one of the registered agent', async () => {
  const agent = await registered('test', [use(pay(9)), say('Refused.')]);
  const own = new RunAgent({ api: ann, model: server.model }, [], {
    model: agent,
    name: agent,
    tools: [{ name: 'pay', description: 'pays', parameters: { type: 'object' } }],
  });
  const paused = await own.run('Pay');
  expect(inShort(paused.output)).toEqual(['model p1']);
  await ann.send('POST', `/v1/runs/${paused.id}/cancel`);
  await ann.get(`/v1/runs/${paused.id}?wait_seconds=30`);
  expect(resultsOf(await run(ann, agent, [user('Pay'), ...paused.output.slice(0, 1)]))).toEqual([['p1', 'failed']]);
  expect(paid).toEqual([]);
});

test('a sub-agent that a client has written the call for has the tools of a draft of the client', async () => {
  const agent = await registered('test', [say('I cannot.'), say('Done.')], {
    config: { dynamic_sub_agents: { enabled: true } },
  });
  const task = { name: 'create_sub_agent', id: 's1', args: { name: 'payer', input: 'Pay 3' } };
  const done = await run(ann, agent, [user('Pay'), calls(task)]);
  expect([done.status, resultsOf(done)]).toEqual(['completed', [['s1', 'succeeded']]]);
  const offered = server.model.requestsTo(agent).map(({ tools = [] }) => tools.map(({ function: one }) => one.name));
  expect(offered.map((names) => names.includes('pay'))).toEqual([false, true]);
});
