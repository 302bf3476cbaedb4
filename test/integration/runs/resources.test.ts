import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import type { Run } from '../../../src/api/runs/wire/run.ts';
import { turnWorkflowId } from '../../../src/core/temporal-names.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { runIdsOf } from '../../../src/features/run-support/runs.ts';
import { ApiClient } from '../../support/api-client.ts';
import { RunAgent, textOfRun, user } from '../../support/runs.ts';
import { held, say, use, type Script } from '../../support/scripted-model.ts';
import { TemporalClient } from '../../support/temporal-client.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Runs as resources: who finds them and where, what is stored of them, and their deletion. */

/** Too large for a record. */
const PHOTO = 'AAAA'.repeat(10_000);

let server: TestServer;
let root: ApiClient;
let bob: ApiClient;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,bob=key-of-bob' },
    mcp: {
      tools: [
        { name: 'long', annotations: { readOnlyHint: true }, handler: () => 'long '.repeat(80_000) },
        { name: 'photo', handler: () => ({ content: [{ type: 'image', mimeType: 'image/png', data: PHOTO }] }) },
      ],
    },
  });
  [root, bob] = ['key-of-root', 'key-of-bob'].map((key) => new ApiClient(server.api.url, key)) as [
    ApiClient,
    ApiClient,
  ];
});
afterAll(() => server.stop());

const LAB = { toolkits: [{ type: 'mcp', server: 'test' }] };
const agent = (scripts: Script[], params: object = {}): RunAgent =>
  new RunAgent({ api: root, model: server.model }, scripts, params);

test('a list of runs reads none of their files', async () => {
  const run = await agent([use({ name: 'photo', id: 'c1' }), say('A large cat.')], LAB).run('Go');
  expect(run.output[1]).toMatchObject({ output: [{ type: 'text' }, { data: PHOTO }] });
  const blobs = join(server.dataDir, 'blobs');
  const folder = (await readdir(blobs, { recursive: true })).find((one) => one.endsWith(run.id.replace('run', 'ses')));
  await rm(join(blobs, folder ?? ''), { recursive: true });
  expect((await root.list<Run>('/v1/runs')).map(({ id }) => id)).toContain(run.id);
});

test('57: the history of a run does not grow with the items that it was given', async () => {
  const temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
  onTestFinished(() => temporal.close());
  const historyBytes = async (input: unknown): Promise<number> => {
    const answer = held(
      () => undefined,
      (call) => call.text('And that.').finish(),
    );
    const one = agent([answer.script]);
    const { id } = await one.run(input, { wait_seconds: 0 });
    await answer.reached;
    const turn = temporal.client.workflow.getHandle(turnWorkflowId(runIdsOf(id).turnId));
    const { raw } = await turn.describe();
    answer.release();
    expect(await root.get(`/v1/runs/${id}?wait_seconds=30`)).toMatchObject({ status: 'completed', turns: 1 });
    return Number(raw.workflowExecutionInfo?.historySizeBytes);
  };
  const items = Array.from({ length: 2_500 }, (_, i) => [
    user(`question ${i}`),
    { type: 'model', content: [{ type: 'text', text: `answer ${i}` }] },
  ]);
  const [short, long] = [await historyBytes('And now?'), await historyBytes([...items.flat(), user('And now?')])];
  expect(server.model.requests.at(-1)?.messages.filter(({ role }) => role !== 'system')).toHaveLength(5_001);
  expect(short).toBeGreaterThan(1_000);
  expect(Math.abs(long - short)).toBeLessThan(1_000);
});

test('60: a run that is not waited for is running, and is not found once it is deleted', async () => {
  const one = agent([say('Later.')]);
  const started = await one.run('Go', { wait_seconds: 0 });
  expect(started).toMatchObject({ status: 'running', output: [] });
  const path = `/v1/runs/${started.id}`;
  expect(await root.get(`${path}?wait_seconds=30`)).toMatchObject({ status: 'completed' });
  expect((await root.list<Run>('/v1/runs')).map(({ id }) => id)).toContain(started.id);
  expect((await root.list<Run>('/v1/runs?status=failed')).map(({ id }) => id)).not.toContain(started.id);
  expect((await root.send('DELETE', path)).status).toBe(204);
  expect((await root.send('GET', path)).status).toBe(404);
});

test('the sessions of sub-agents are not runs', async () => {
  server.model.script('boss', use({ name: 'delegate', args: { agent: 'helper', task: 'Help.' } }), say('Helped.'));
  server.model.script('helper', say('Yes.'));
  const helper = { name: 'helper', description: 'helps', environments: [], model: 'helper' };
  const boss = { name: 'boss', description: 'asks', environments: [], model: 'boss', subagents: [helper] };
  expect((await root.send('POST', '/api/v2/agents', boss)).status).toBe(201);
  const { body } = await root.send<Run>('POST', '/v1/agents/boss/runs', { input: [user('Go')] });
  expect(textOfRun(body)).toBe('Helped.');
  expect((await root.get('/v1/runs?limit=1')).data).toMatchObject([{ id: body.id }]);
  const children = server.database.rows.selectFrom('delegations').select('child_session_id as id');
  const [child] = await children.where('parent_session_id', '=', body.id.replace('run_', 'ses_')).execute();
  const paths = [`/v1/agents/sessions/${child?.id}`, `/v1/runs/${child?.id.replace('ses_', 'run_')}`];
  for (const path of paths) expect((await root.send('DELETE', path)).status).toBe(404);
  const listed = await root.get<{ items: { id: string }[] }>('/api/v2/sessions');
  expect(listed.items).toEqual([]);
});

test('a run that was interrupted before it began does not exist', async () => {
  const { id } = await agent([say('Hi.')]).run('Go');
  const { rows } = server.database;
  const known = await rows
    .selectFrom('sessions')
    .selectAll()
    .where('id', '=', id.replace('run_', 'ses_'))
    .executeTakeFirstOrThrow();
  const interrupted = newId('run');
  await rows
    .insertInto('sessions')
    .values({ ...known, id: interrupted.replace('run_', 'ses_'), state: 'pending' })
    .execute();
  const path = `/v1/runs/${interrupted}`;
  const answers = await Promise.all([
    root.send('GET', path),
    root.send('GET', `${path}?wait_seconds=1`),
    root.send('GET', `${path}/stream`),
    root.send('GET', `${path}/events`),
    root.send('POST', `${path}/cancel`),
    root.send('POST', `${path}/resume`, {}),
  ]);
  expect(answers.map(({ status, body }) => `${status} ${body?.error?.code}`)).toEqual(
    answers.map(() => '404 run_not_found'),
  );
  expect((await root.list<Run>('/v1/runs')).map((run) => run.id)).not.toContain(interrupted);
  expect((await root.send('DELETE', path)).status).toBe(204);
});

test('the log of a run links to what is too long for its items', async () => {
  const { id, output } = await agent([use({ name: 'long', id: 'c1' }), say('That was long.')], LAB).run('Go');
  expect(JSON.stringify(output).length).toBeLessThan(300_000);
  const { data } = await root.get<{ data: { type: string; content?: string }[] }>(`/v1/runs/${id}/events`);
  const { content = '' } = data.find(({ type }) => type === 'tool.response') ?? {};
  const [link] = /\/v1\/agents\/sessions\/\S+\/files\/\w+/.exec(content) ?? [];
  const file = await fetch(root.url + link, { headers: { authorization: 'Bearer key-of-root' } });
  expect(await file.text()).toBe('long '.repeat(80_000));
});

test('runs are not sessions', async () => {
  const { id } = await agent([say('Hi.')]).run('Go');
  const session = id.replace('run_', 'ses_');
  expect((await root.send('GET', `/v1/agents/sessions/${session}`)).status).toBe(404);
  const lists = ['/v1/x/agents/owned-sessions', '/v1/agents/sessions'].map((path) => root.list<{ id: string }>(path));
  expect((await Promise.all(lists)).flat().map((one) => one.id)).not.toContain(session);
  const { items } = await root.get<{ items: { id: string }[] }>('/api/v2/sessions');
  expect(items).toEqual([]);
  expect((await root.get(`/v1/runs/${id}/events`)).data).toMatchObject([{ type: 'model.message' }]);
});

test("59: another subject's run is in no list, and no route finds it", async () => {
  const tools = [{ name: 'door', description: 'opens', parameters: { type: 'object' } }];
  const { id } = await agent([use({ name: 'door', id: 'c1' })], { tools }).run('Go');
  const path = `/v1/runs/${id}`;
  const answers = await Promise.all([
    bob.send('GET', path),
    bob.send('GET', `${path}/stream`),
    bob.send('POST', `${path}/resume`, { tool_results: [{ tool_call_id: 'c1', content: 'open' }] }),
    bob.send('POST', `${path}/cancel`),
    bob.send('DELETE', path),
    bob.send('GET', `${path}/events`),
  ]);
  expect(answers.map(({ status, body }) => `${status} ${body?.error?.code}`)).toEqual(
    answers.map(() => '404 run_not_found'),
  );
  expect(await bob.list('/v1/runs')).toEqual([]);
  expect(await root.get(path)).toMatchObject({ status: 'requires_action' });
});
