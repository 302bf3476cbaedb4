import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, inject, test, vi } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { newId } from '../../src/engine/new-id.ts';
import { folded, foldedByTurn, type EventReader, type SessionFrame } from '../support/api-client.ts';
import { everturn } from '../support/command-line.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { oddEndpoint } from '../support/odd-mcp-server.ts';
import { TestRedis } from '../support/redis.ts';
import { expectReplays } from '../support/replay.ts';
import { held, say, ScriptedModel, use, type Script } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';
import { onTestServer } from '../support/test-server.ts';

// Each test starts several processes, which on a busy machine takes longer than the test itself.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

/** Two APIs and one or two workers, each in its own process, on one Temporal, one Redis and one database. */

let dataDir: string;
let database: TestDatabase;
let redis: TestRedis;
let model: ScriptedModel;
let mcp: TestMcpServer;
let env: Record<string, string>;
let api1: ServerProcess;
let api2: ServerProcess;
let worker1: ServerProcess;
let worker2: ServerProcess;
/** Resolves the call of the tool `wait`. */
let toolMayEnd: PromiseWithResolvers<void>;

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-apart-'));
  [redis, model, database] = await Promise.all([TestRedis.start(), ScriptedModel.start(), createTestDatabase(dataDir)]);
  mcp = await TestMcpServer.start({
    tools: [
      {
        name: 'wait',
        handler: async () => {
          await toolMayEnd.promise;
          return 'waited';
        },
      },
    ],
  });
  const mcpFile = path.join(dataDir, 'mcp.json');
  const inputSchema = { type: 'object', properties: { n: { type: 'number' } } };
  const { command, args, env: programEnv } = oddEndpoint({ tools: [{ name: 'count', inputSchema }] });
  const program = { command, args, env: programEnv, idle_seconds: 1 };
  await writeFile(mcpFile, JSON.stringify({ servers: { test: { url: mcp.url }, program } }));
  const agents = path.join(dataDir, 'agents');
  await mkdir(agents);
  await writeFile(path.join(agents, 'filed.json'), JSON.stringify({ model: { name: 'filed' } }));
  env = {
    EVERTURN_TASK_QUEUE: newId('req'),
    EVERTURN_MCP_SERVERS: mcpFile,
    EVERTURN_AGENTS: agents,
    DATABASE_URL: database.url,
    REDIS_URL: redis.url,
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
  };
  [api1, api2, worker1, worker2] = await Promise.all([
    ServerProcess.prepare(dataDir, env, 'api'),
    ServerProcess.prepare(dataDir, env, 'api'),
    ServerProcess.prepare(dataDir, env, 'worker'),
    ServerProcess.prepare(dataDir, env, 'worker'),
  ]);
  await Promise.all([api1.start(), api2.start()]);
});

afterAll(async () => {
  await expectReplays(loadConfig(env));
  for (const part of [api1, api2, worker1, worker2]) await part.stop();
  await Promise.all([redis.down(), model.stop(), mcp.stop(), database.close()]);
  await rm(dataDir, { recursive: true, force: true });
});

beforeEach(() => {
  toolMayEnd = Promise.withResolvers();
});

/** Starts the processes that a test before has ended. */
async function startMissing(): Promise<void> {
  await Promise.all([api1, api2, worker1].filter((part) => !part.isRunning).map((part) => part.start()));
}

/** Starts a turn at the first API. */
async function begin(...scripts: Script[]) {
  await startMissing();
  const agent = newId('req');
  model.script(agent, ...scripts);
  await api1.api.putAgent(agent, { model: { name: agent }, ...onTestServer });
  const sessionId = await api1.api.createSession(agent);
  const first = api1.api.turn(sessionId, 'go');
  const turnId = await first.turnId();
  return {
    first,
    sessionId,
    requests: () => model.requestsTo(agent).length,
    /** Starts a reader at an API, from a cursor. */
    read: ({ api }: ServerProcess, after?: number) => api.subscribe(sessionId, turnId, after),
    more: () => api2.api.turn(sessionId, 'more'),
  };
}

async function whole(...readers: EventReader[]): Promise<object[]> {
  return folded(...(await Promise.all(readers.map(({ done, frames }) => done.catch(() => frames)))));
}

test('an API without workers reports it until one starts, which creates the sessions of schedules triggered before', async () => {
  const readiness = async () => {
    const { status, body } = await api1.api.send('GET', '/readyz');
    return [status, body.problems];
  };
  // A dependency that does not answer in time is reported as well.
  await expect.poll(readiness).toEqual([503, [expect.stringMatching(/^no worker is running: .*everturn worker/)]]);
  const name = newId('req');
  model.script(name, say('One.'), say('Two.'));
  const agent = { name: 'scheduled', description: 'for the test', environments: [], model: name };
  const created = await api1.api.send('POST', '/api/v2/schedules', {
    name: 'Rarely',
    timing: { expression: '0 0 1 1 *', timezone: 'UTC' },
    session_request: { agent, messages: 'go' },
  });
  expect(created.status, JSON.stringify(created.body)).toBe(201);
  const path = `/api/v2/schedules/${created.body.id}`;
  expect((await api1.api.send('POST', `${path}/trigger`)).status).toBe(503);
  await worker1.start();
  await expect.poll(async () => (await api1.api.send('GET', '/readyz')).status).toBe(200);
  const runs = () => api1.api.get<{ items: { session_id: string }[] }>(`${path}/runs`);
  const completes = async (sessionId: string | undefined) => {
    const status = () => api1.api.get(`/api/v2/sessions/${sessionId}/status`);
    await expect.poll(status).toMatchObject({ status: 'completed' });
  };
  await expect.poll(runs).toMatchObject({ total: 1 });
  // A schedule skips a run while the one before it is going on.
  await completes((await runs()).items[0]?.session_id);
  const { body: run } = await api2.api.send('POST', `${path}/trigger`);
  expect(run).toMatchObject({ status: 'created', triggered_manually: true });
  await completes(run.session_id);
  expect(await runs()).toMatchObject({ total: 2 });
  expect((await api1.api.send('DELETE', path)).status).toBe(204);
});

test('a program that an API has started to validate edits ends when it is idle, also while the call waits', async () => {
  await startMissing();
  const agent = newId('req');
  model.script(agent, use({ name: 'count', args: { n: 1 }, id: 'c' }));
  const servers = [{ type: 'truefoundry-mcp-registry', name: 'program' }];
  await api1.api.putAgent(agent, { model: { name: agent }, mcp_servers: servers });
  const sessionId = await api1.api.createSession(agent);
  expect(await api1.api.turn(sessionId, 'go').end()).toMatchObject({ required_actions: [{}] });
  const approval = { status: 'allow', arguments: { n: 'one' } };
  const input = [{ type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'c', approval }];
  const { body } = await api1.api.send('POST', `/v1/agents/sessions/${sessionId}/turns`, { input });
  expect(body.error).toMatchObject({ code: 'invalid_arguments' });
  const folder = path.join(dataDir, 'programs');
  const owners = async () => {
    const read = (name: string) => readFile(path.join(folder, name), 'utf8').catch(() => '{}');
    const records = await Promise.all((await readdir(folder)).map(read));
    return records.map((text) => (JSON.parse(text) as { owner?: { pid: number } }).owner?.pid);
  };
  await expect.poll(owners).not.toContain(api1.pid);
});

test('a turn started at one API is streamed live by another; a late reader gets the text so far', async () => {
  const answer = held(
    (call) => call.text('I was saying '),
    (call) => call.text('that all is well.').finish(),
  );
  const { first, read } = await begin(answer.script);
  await first.says('I was saying');
  const late = read(api2);
  await late.says('I was saying');
  answer.release();
  await late.says('that all is well.');
  expect(await whole(late)).toEqual(await whole(first));
  for (const part of [api1, api2, worker1]) {
    await expect.poll(() => part.api.get('/readyz')).toMatchObject({ status: 'ready', problems: [] });
    expect(await part.api.get('/healthz')).toEqual({ status: 'ok' });
  }
  expect((await worker1.api.send('GET', '/v1/agents/filed')).status).toBe(404);
});

test('when a worker is killed in mid-stream, another repeats the message for the readers of both APIs', async () => {
  const answer = held(
    (call) => call.text('I was saying '),
    () => undefined,
  );
  const { first, read, requests, more } = await begin(answer.script, say('I was saying that all is well.'));
  const beside = read(api2);
  await beside.says('I was saying');
  await worker2.start();
  await worker1.kill();
  [worker1, worker2] = [worker2, worker1];
  answer.release();
  expect(await first.end()).toMatchObject({ status: 'done', output: { content: 'I was saying that all is well.' } });
  expect(await whole(beside)).toEqual(await whole(first));
  expect(await whole(read(api2))).toEqual(await whole(first));
  expect(requests()).toBe(2);
  expect(await more().end()).toMatchObject({ status: 'done' });
});

test('when an API is killed in mid-stream, its reader resumes at another from its cursor', async () => {
  const answer = held(
    (call) => call.text('I was saying '),
    (call) => call.text('that all is well.').finish(),
  );
  const { first, read, requests } = await begin(answer.script);
  await first.says('I was saying');
  await api1.kill();
  await first.done.catch(() => undefined);
  const rest = read(api2, first.frames.at(-1)?.sequence_number);
  await rest.says('I was saying');
  answer.release();
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: 'I was saying that all is well.' } });
  expect(await whole(first, rest)).toEqual(await whole(read(api2)));
  expect(requests()).toBe(1);
});

test('when Redis restarts in mid-stream, text in progress is resent and no event is lost', async () => {
  const [down, up] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const [said, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { first, read } = await begin(async (call) => {
    call.text('before ');
    await down.promise;
    call.text('meanwhile ');
    said.resolve();
    await up.promise;
    call.text('after ');
    await end.promise;
    call.finish();
  });
  const beside = read(api2);
  await Promise.all([first.says('before'), beside.says('before')]);
  await redis.down();
  down.resolve();
  await said.promise;
  // While Redis is unavailable, turns are not slower and readers get everything that is durable.
  const meanwhile = await begin(use({ name: 'wait' }), say('without Redis'));
  toolMayEnd.resolve();
  expect(await meanwhile.first.end()).toMatchObject({ status: 'done', output: { content: 'without Redis' } });
  await redis.up();
  // The model sends nothing more meanwhile.
  await Promise.all([first.says('before meanwhile '), beside.says('before meanwhile ')]);
  up.resolve();
  await Promise.all([first.says('after'), beside.says('after')]);
  end.resolve();
  expect(await first.end()).toMatchObject({ output: { content: 'before meanwhile after ' } });
  expect(await whole(beside)).toEqual(await whole(first));
  expect(await whole(read(api2))).toEqual(await whole(first));
});

test('a session is followed over turns that other APIs start, across the death of its API and without Redis', async () => {
  const answer = held(
    (call) => call.text('I was saying '),
    (call) => call.text('that all is well.').finish(),
  );
  const { first, sessionId } = await begin(say('one'), answer.script, say('three'));
  const isEnd = ({ type }: SessionFrame): boolean => type === 'turn.done';
  const ended = (reader: EventReader<SessionFrame>, count: number) =>
    reader.next(() => reader.frames.filter(isEnd).length === count);
  const [reader, other] = [api2.api.followSession(sessionId), api1.api.followSession(sessionId)];
  await Promise.all([ended(reader, 1), ended(other, 1)]);
  const second = api1.api.turn(sessionId, 'and then?');
  await reader.says('I was saying');
  await api2.kill();
  await reader.done.catch(() => undefined);
  const rest = api1.api.followSession(sessionId, reader.frames.at(-1)?.sequence_number);
  await rest.says('I was saying');
  answer.release();
  await Promise.all([ended(rest, 1), ended(other, 2)]);
  await api2.start();
  const late = api2.api.followSession(sessionId, rest.frames.at(-1)?.sequence_number);
  await redis.down();
  const third = api1.api.turn(sessionId, 'and now?');
  await Promise.all([ended(late, 1), ended(rest, 2), ended(other, 3)]);
  await redis.up();
  const expected = await Promise.all(
    [first, second, third].map(async (turn) => ({ turnId: await turn.turnId(), events: folded(await turn.done) })),
  );
  expect(foldedByTurn(other.frames)).toEqual(expected);
  expect(foldedByTurn(reader.frames, rest.frames)).toEqual(expected);
  expect(foldedByTurn(late.frames)).toEqual(expected.slice(2));
  for (const each of [rest, other, late]) each.close();
});

test('a worker that is stopped finishes its tools and hands its model calls to another', async () => {
  const answer = held(
    (call) => call.text('Half a '),
    () => undefined,
  );
  const streaming = await begin(answer.script, say('Half a word.'));
  const waiting = await begin(use({ name: 'wait' }), say('It has waited.'));
  await streaming.first.says('Half a');
  await expect.poll(() => mcp.calls.some(({ tool }) => tool === 'wait')).toBe(true);
  await worker2.start();
  const stopped = worker1.stop();
  [worker1, worker2] = [worker2, worker1];
  expect(await streaming.first.end()).toMatchObject({ status: 'done', output: { content: 'Half a word.' } });
  toolMayEnd.resolve();
  expect(await stopped).toBe(0);
  expect(await waiting.first.end()).toMatchObject({ status: 'done', output: { content: 'It has waited.' } });
  expect([streaming.requests(), waiting.requests()]).toEqual([2, 2]);
  const outcomes = (await whole(waiting.first)).map((event) => 'outcome' in event && event.outcome);
  expect(outcomes).toContain('succeeded');
});

test('agents in files are registered once, however many APIs register them', async () => {
  const { data } = await api2.api.get('/v1/agents/filed');
  expect(data).toMatchObject({ name: 'filed', version: 1 });
});

test.each(['api', 'worker'])('%s without the shared services reports which settings are missing', async (command) => {
  const { code, stderr } = await everturn([command], { EVERTURN_DATA: dataDir, DATABASE_URL: 'sqlite:x' });
  expect(code).toBe(1);
  expect(stderr).toMatch(
    new RegExp(`^everturn: everturn ${command} .*\nTEMPORAL_ADDRESS .*\nREDIS_URL .*\nOPENAI_API_KEY`),
  );
});

// Ends an API that no later test needs.
test('an API that is stopped completes its responses and ends its streams, whose readers resume at another', async () => {
  const answer = held(
    (call) => call.text('I was saying '),
    (call) => call.text('that all is well.').finish(),
  );
  const { first, read } = await begin(answer.script);
  await first.says('I was saying');
  expect(await api1.stop()).toBe(0);
  await expect(first.done).rejects.toThrow('terminated');
  const rest = read(api2, first.frames.at(-1)?.sequence_number);
  answer.release();
  expect(await rest.end()).toMatchObject({ status: 'done' });
  expect(await whole(first, rest)).toEqual(await whole(read(api2)));
});
