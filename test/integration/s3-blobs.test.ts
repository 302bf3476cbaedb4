import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, inject, onTestFinished, test, vi } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { newId } from '../../src/engine/new-id.ts';
import { StartupError } from '../../src/lib/errors.ts';
import { folded } from '../support/api-client.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { TestRedis } from '../support/redis.ts';
import { expectReplays } from '../support/replay.ts';
import { TestS3 } from '../support/s3.ts';
import { held, say, ScriptedModel, use } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { createTestDatabase } from '../support/test-database.ts';
import { onTestServer, startTestServer } from '../support/test-server.ts';

vi.setConfig({ testTimeout: 180_000 });

const bytes = (letter: string) => Buffer.alloc(300_000, letter);
const fileOf = (letter: string) => ({
  type: 'file',
  name: 'x.txt',
  data: `data:text/plain;base64,${bytes(letter).toString('base64')}`,
});
const withFile = (letter: string) => [{ type: 'user.message', content: [fileOf(letter)] }];
const flood = { name: 'flood', annotations: { readOnlyHint: true }, handler: () => 'y'.repeat(400_000) };

let s3: TestS3;
beforeAll(async () => {
  s3 = await TestS3.start();
});
afterAll(() => s3.stop());

/** The settings of a server in this process, whose environment the AWS SDK reads. */
function useS3(prefix: string): Record<string, string> {
  const env = s3.envFor(prefix);
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  return env;
}

async function startServer(prefix: string) {
  const env = useS3(prefix);
  const server = await startTestServer({ env, mcp: { tools: [flood] } });
  onTestFinished(() => server.stop());
  return server;
}

/** The URLs of files in some events; a tool's result has its own inside of its text. */
function urlsIn(events: object[]): string[] {
  return JSON.stringify(events).match(/\/v1\/agents\/sessions\/\w+\/files\/[\w?=&%.-]+/g) ?? [];
}

test('files and large results are objects, which are read again and deleted with their session', async () => {
  const server = await startServer('one');
  const chat = await server.chat({ scripts: [use({ name: 'flood' }), say('z'.repeat(200_000))], spec: onTestServer });
  const reader = chat.turn(withFile('a'));
  expect(await reader.end()).toMatchObject({ status: 'done' });
  const replay = await server.api.subscribe(chat.sessionId, await reader.turnId()).done;
  expect(folded(replay)).toEqual(folded(await reader.done));
  expect((await s3.objects(`one/${chat.sessionId}`)).length).toBeGreaterThanOrEqual(3);
  expect(await readdir(server.dataDir)).not.toContain('blobs');

  const events = await server.api.list<object>(`${chat.path}/events`);
  const urls = urlsIn(events);
  expect(urls.length).toBeGreaterThanOrEqual(2);
  const contents = await Promise.all(urls.map(async (url) => (await fetch(server.api.url + url)).text()));
  expect(contents).toContain(bytes('a').toString());
  expect(contents).toContain('y'.repeat(400_000));
  // The next turn sends the file again, by its URL.
  chat.script(say('read again'));
  const again = [{ type: 'user.message', content: [{ type: 'file', name: 'x', data: urls[0] }] }];
  expect(await chat.turn(again).end()).toMatchObject({ status: 'done' });

  expect((await server.api.send('DELETE', chat.path)).status).toBe(204);
  await expect.poll(() => s3.objects(`one/${chat.sessionId}`)).toEqual([]);
});

test('objects that no record refers to are deleted after a day, the others are kept', async () => {
  const server = await startServer('two');
  const chat = await server.chat({ scripts: [say('hi')] });
  const folder = `two/${chat.sessionId}`;
  await chat.turn(withFile('a')).end();
  const [kept = ''] = await s3.objects(folder);
  const { status } = await server.api.send('POST', `${chat.path}/turns`, {
    input: withFile('b'),
    previous_turn_id: 'turn_unknown',
  });
  expect(status).toBe(404);
  expect((await s3.objects(folder)).length).toBe(2);
  const { rows } = server.database;
  const open = () =>
    rows.selectFrom('turns').select('id').where('session_id', '=', chat.sessionId).where('archived', '=', 0).execute();
  await expect.poll(open).toEqual([]);
  // The time of an object cannot be changed, but that of the housekeeping at a start can.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3 * 86_400_000, shouldAdvanceTime: true });
  onTestFinished(() => void vi.useRealTimers());
  await server.restart();
  await expect.poll(() => s3.objects(folder)).toEqual([kept]);
});

test('a server does not start without its bucket, and says why', async () => {
  const env = { ...useS3('three'), EVERTURN_BLOBS: 's3://another-bucket' };
  const error = await startTestServer({ env }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(StartupError);
  expect((error as Error).message).toMatch(/check EVERTURN_BLOBS, .*s3:\/\/another-bucket\/: NoSuchBucket: /);
});

test('API and worker without a common folder: a turn survives an outage of the store, and nothing is lost', async () => {
  const folders = await Promise.all(['api', 'worker'].map((name) => mkdtemp(path.join(tmpdir(), `everturn-${name}-`))));
  const [apiFolder = '', workerFolder = ''] = folders;
  const [redis, model, database] = await Promise.all([
    TestRedis.start(),
    ScriptedModel.start(),
    createTestDatabase(apiFolder),
  ]);
  const called = Promise.withResolvers<void>();
  const mayEnd = Promise.withResolvers<void>();
  let calls = 0;
  const slowFlood = {
    name: 'flood',
    handler: async () => {
      calls += 1;
      called.resolve();
      await mayEnd.promise;
      return 'y'.repeat(400_000);
    },
  };
  const mcp = await TestMcpServer.start({ tools: [slowFlood] });
  const mcpFile = path.join(apiFolder, 'mcp.json');
  await writeFile(mcpFile, JSON.stringify({ servers: { test: { url: mcp.url } } }));
  const env = {
    EVERTURN_TASK_QUEUE: newId('req'),
    EVERTURN_MCP_SERVERS: mcpFile,
    DATABASE_URL: database.url,
    REDIS_URL: redis.url,
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    ...s3.envFor('apart'),
  };
  const [api, worker] = await Promise.all([
    ServerProcess.prepare(apiFolder, env, 'api'),
    ServerProcess.prepare(workerFolder, env, 'worker'),
  ]);
  onTestFinished(async () => {
    await Promise.all([api.stop(), worker.stop()]);
    await Promise.all([redis.down(), model.stop(), mcp.stop(), database.close()]);
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  });
  await Promise.all([api.start(), worker.start()]);

  const agent = newId('req');
  const last = held(
    (call) => call.text('all is '),
    (call) => call.text('well').finish(),
  );
  model.script(agent, use({ name: 'flood' }), last.script);
  await api.api.putAgent(agent, { model: { name: agent }, ...onTestServer });
  const sessionId = await api.api.createSession(agent);
  const reader = api.api.turn(sessionId, withFile('a'));
  await called.promise;
  await s3.down();
  mayEnd.resolve();
  // The worker holds the result and tries to store it.
  await expect.poll(() => worker.output).toContain('a dependency of an activity is unavailable; it is retried');
  const refused = await api.api.send('POST', `/v1/agents/sessions/${await api.api.createSession(agent)}/turns`, {
    input: withFile('b'),
  });
  expect([refused.status, refused.body.error.code]).toEqual([503, 'unavailable']);
  for (const part of [api, worker]) {
    const problems = async () => (await part.api.send('GET', '/readyz')).body.problems;
    await expect.poll(problems).toEqual([expect.stringContaining('the blob store cannot be written: s3://')]);
  }
  await s3.up();
  last.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'all is well' } });
  expect(calls).toBe(1);
  for (const part of [api, worker])
    await expect.poll(() => part.api.send('GET', '/readyz')).toMatchObject({ status: 200 });

  const replay = await api.api.subscribe(sessionId, await reader.turnId()).done;
  expect(folded(replay)).toEqual(folded(await reader.done));
  const urls = urlsIn(await api.api.list<object>(`/v1/agents/sessions/${sessionId}/events`));
  const contents = await Promise.all(urls.map(async (url) => (await fetch(api.api.url + url)).text()));
  expect(contents).toContain(bytes('a').toString());
  expect(contents).toContain('y'.repeat(400_000));
  await expectReplays(loadConfig(env));
  expect(await Promise.all([api.stop(), worker.stop()])).toEqual([0, 0]);
});
