import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { postgresAccess } from '../../deploy/temporal/postgres-access.ts';
import { temporalPrograms } from '../../deploy/temporal/programs.ts';
import { serveHealth } from '../../deploy/temporal/health.ts';
import { prepareSchemas } from '../../deploy/temporal/schemas.ts';
import { startTemporalOnPostgres, type TemporalOnPostgres } from '../../deploy/temporal/start.ts';
import { loadConfig } from '../../src/config.ts';
import { ProvisionError } from '../../src/lib/errors.ts';
import { folded } from '../support/api-client.ts';
import { keptPort } from '../support/kept-port.ts';
import { Postgres } from '../support/postgres.ts';
import { killUsersAtEnd } from '../support/reaper.ts';
import type { TestTool } from '../support/mcp-server.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { freeTemporalPort } from '../support/temporal-ports.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

const run = promisify(execFile);
const log = pino({ level: 'warn' }, pino.destination(2));
const { cacheDir } = loadConfig({ XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] });

let folder: string;
let port: number;
let postgres: Postgres;
let temporal: TemporalOnPostgres;
// The first time, the programs are built.
beforeAll(async () => {
  postgres = await Postgres.start();
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-temporal-'));
  killUsersAtEnd(folder);
  port = await freeTemporalPort();
  temporal = await start();
}, 20 * 60_000);
afterAll(async () => {
  await temporal.stop();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
});

async function start(): Promise<TemporalOnPostgres> {
  const { url: postgresUrl } = postgres;
  return startTemporalOnPostgres({ postgresUrl, folder, cacheDir, log, port, historyShards: 4, output: 'ignore' });
}

/** An Everturn whose catalog is on the same PostgreSQL. */
async function startEverturn(tools: TestTool[] = []): Promise<TestServer> {
  const env = { TEMPORAL_ADDRESS: temporal.address, TEMPORAL_NAMESPACE: temporal.namespace };
  const server = await startTestServer({ env, mcp: { tools }, postgresUrl: postgres.url });
  onTestFinished(() => server.stop());
  return server;
}

test('turns with an approval, and a restart of Temporal in between, on PostgreSQL alone', async () => {
  let notes = 0;
  const write = { name: 'write', annotations: { destructiveHint: true }, handler: () => `note ${(notes += 1)}` };
  const server = await startEverturn([write]);
  const model = held(
    (call) => call.text('It is '),
    (call) => call.text('written').finish(),
  );
  // If the restart takes long, the model is called again.
  const scripts = [use({ name: 'write', id: 'w' }), model.script, say('It is written')];
  const chat = await server.chat({ scripts, spec: onTestServer });
  const asked = chat.turn('write it down');
  expect(await asked.end()).toMatchObject({ status: 'done', required_actions: [{ type: 'tool.approval_required' }] });

  await temporal.stop();
  temporal = await start();
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w', approval: { status: 'allow' } };
  const allowed = chat.turn([approval]);
  await allowed.says('It is');
  // And once more, during a model call.
  await temporal.stop();
  temporal = await start();
  model.release();
  expect(await allowed.end()).toMatchObject({ status: 'done', output: { content: 'It is written' } });
  expect(notes).toBe(1);
  const replay = await server.api.subscribe(chat.sessionId, await allowed.turnId()).done;
  expect(folded(await allowed.done)).toEqual(folded(replay));
  expect((await chat.turn('thanks').end()).status).toBe('done');
}, 180_000);

test('when PostgreSQL restarts during a turn, under Temporal and the catalog, the turn continues', async () => {
  const look = { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' };
  const server = await startEverturn([look]);
  const model = held(
    (call) => call.text('I go '),
    (call) => call.text('on').finish(),
  );
  const scripts = [use({ name: 'look' }), model.script, say('I go on')];
  const chat = await server.chat({ scripts, spec: onTestServer });
  const reader = chat.turn('go');
  await reader.says('I go');
  await postgres.down();
  const refused = await server.api.send('POST', `${chat.path}/turns`, { input: [] });
  expect([refused.status, refused.body.error.code]).toEqual([503, 'unavailable']);
  model.release();
  await postgres.up();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I go on' } });
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
  expect((await chat.turn('more').end()).status).toBe('done');
}, 180_000);

test('its health is that of the server and its namespace', async () => {
  const proxy = await TcpProxy.start(temporal.address);
  const healthOf = async (namespace: string) => {
    const healthPort = await keptPort();
    const health = await serveHealth({ port: healthPort, address: proxy.address, namespace });
    onTestFinished(() => health.stop());
    return async () => (await fetch(`http://127.0.0.1:${healthPort}/healthz`)).status;
  };
  const status = await healthOf(temporal.namespace);
  expect(await status()).toBe(200);
  expect(await (await healthOf('no-such-namespace'))()).toBe(503);
  // As a server that was suspended: connections stay open, and nothing answers.
  proxy.hold();
  expect(await status()).toBe(503);
  proxy.flow();
  await expect.poll(status).toBe(200);
});

test('tables that cannot be created stop the start with the reason', async () => {
  const { url: postgresUrl } = postgres;
  const sqlTool = path.join(folder, 'sql-tool');
  await writeFile(sqlTool, '#!/bin/sh\necho no room >&2\nexit 1\n', { mode: 0o700 });
  const failed = prepareSchemas({ postgresUrl, access: postgresAccess(postgresUrl), sqlTool });
  await expect(failed).rejects.toThrow(ProvisionError);
  await expect(failed).rejects.toThrow(/no room/);
});

test('its dynamic configuration is valid, and the file with its password is readable by its owner only', async () => {
  const { server } = await temporalPrograms({ cacheDir, env: process.env, log });
  const { stdout } = await run(server, ['validate-dynamic-config', path.join(folder, 'config/dynamic.yaml')]);
  expect(stdout).not.toMatch(/error|warning/);
  const config = path.join(folder, 'config/prod.yaml');
  expect((await stat(config)).mode & 0o077).toBe(0);
  expect(await readFile(config, 'utf8')).toContain('"numHistoryShards":4');
});
