import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import type { EventReader } from '../support/api-client.ts';
import { changedCheckout } from '../support/changed-checkout.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { startOwnTemporal, type OwnTemporal } from '../support/own-temporal.ts';
import { TestRedis } from '../support/redis.ts';
import { say, ScriptedModel, use, type Script } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { findTemporalCli } from '../support/temporal-cli.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';
import { onTestServer } from '../support/test-server.ts';

// Each test starts several processes, which on a busy machine takes longer than the test itself.
vi.setConfig({ testTimeout: 240_000, hookTimeout: 180_000 });

/** Turns begin with a timer, so no version can replay the turns of the other. */
const OTHER_TURNS = `
  import { sleep } from '@temporalio/workflow';
  import { turn as turnBefore } from './turn.ts';
  export { deleteSession } from './delete-session.ts';
  export { session } from './session.ts';
  export async function turn(start) {
    await sleep(1);
    return turnBefore(start);
  }
`;

/** New sessions begin with a timer, behind a patch: this version replays older sessions, older versions not its own. */
const PATCHED_SESSIONS = `
  import { patched, sleep } from '@temporalio/workflow';
  import { session as sessionBefore } from './session.ts';
  export { deleteSession } from './delete-session.ts';
  export { turn } from './turn.ts';
  export async function session(start) {
    if (patched('timer')) sleep(1).catch(() => undefined);
    return sessionBefore(start);
  }
`;

let temporal: OwnTemporal;
let operator: TemporalClient;
/** Runs a command of Temporal's CLI as the documentation gives it, and returns its output. */
let cli: (...args: string[]) => Promise<string>;
let dataDir: string;
let database: TestDatabase;
let redis: TestRedis;
let model: ScriptedModel;
let mcp: TestMcpServer;
let api: ServerProcess;
let workers: Record<'none' | '1.0' | '2.0' | '3.0', ServerProcess>;
/** Resolves the calls of the tool `wait`. */
let toolsMayEnd: PromiseWithResolvers<void>;

beforeAll(async () => {
  temporal = await startOwnTemporal({
    // 3 minutes each by default.
    'matching.wv.VersionDrainageStatusVisibilityGracePeriod': '1s',
    'matching.wv.VersionDrainageStatusRefreshInterval': '1s',
  });
  operator = await TemporalClient.connect(temporal);
  const { address, namespace } = temporal;
  const program = await findTemporalCli();
  const env = { PATH: process.env['PATH'], HOME: homedir(), TEMPORAL_ADDRESS: address, TEMPORAL_NAMESPACE: namespace };
  cli = async (...args) => (await promisify(execFile)(program, args, { env })).stdout;

  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-deploys-'));
  [redis, model, database] = await Promise.all([TestRedis.start(), ScriptedModel.start(), createTestDatabase(dataDir)]);
  const wait = async () => {
    await toolsMayEnd.promise;
    return 'waited';
  };
  mcp = await TestMcpServer.start({ tools: [{ name: 'wait', handler: wait }] });
  const mcpFile = path.join(dataDir, 'mcp.json');
  await writeFile(mcpFile, JSON.stringify({ servers: { test: { url: mcp.url } } }));
  const settings = {
    EVERTURN_MCP_SERVERS: mcpFile,
    DATABASE_URL: database.url,
    REDIS_URL: redis.url,
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: address,
    TEMPORAL_NAMESPACE: namespace,
  };
  const versions = {
    none: undefined,
    '1.0': undefined,
    '2.0': await changedCheckout(path.join(dataDir, '2.0'), OTHER_TURNS),
    '3.0': await changedCheckout(path.join(dataDir, '3.0'), PATCHED_SESSIONS),
  };
  api = await ServerProcess.prepare(dataDir, settings, 'api');
  const prepared = Object.entries(versions).map(async ([version, main]) => {
    const env = {
      ...settings,
      ...(version !== 'none' && { EVERTURN_BUILD_ID: version }),
      // The bundles of this checkout are those of other tests.
      ...(main && { XDG_CACHE_HOME: path.join(dataDir, 'cache') }),
    };
    return [version, await ServerProcess.prepare(dataDir, env, 'worker', main)];
  });
  workers = Object.fromEntries(await Promise.all(prepared));
  await api.start();
});

afterAll(async () => {
  for (const part of [api, ...Object.values(workers)]) await part.stop();
  await Promise.all([redis.down(), model.stop(), mcp.stop(), database.close(), operator.close()]);
  await temporal.stop();
  await rm(dataDir, { recursive: true, force: true });
});

afterEach(async () => {
  for (const worker of Object.values(workers)) await worker.stop();
  expect(await failedTasks()).toEqual([]);
});

type Version = Exclude<keyof typeof workers, 'none'>;

/** Makes a version current, and resolves when the API has read that its workers take new turns. */
async function deploy(version: Version): Promise<void> {
  // Temporal refuses until the workers of the version poll for workflow tasks and for activities.
  const set = () => onVersion('set-current-version', version, '--yes').then(String, String);
  await expect.poll(set).toMatch(/^Successfully/);
  await expect.poll(async () => (await api.api.send('GET', '/readyz')).status).toBe(200);
}

/** Runs a command for a version of the workers, and returns its output. */
function onVersion(command: string, version: Version, ...options: string[]): Promise<string> {
  const named = ['--deployment-name', 'everturn', '--build-id', version];
  return cli('worker', 'deployment', command, ...named, ...options);
}

/** Resolves when no running turn belongs to a version, according to Temporal. */
async function drained(version: Version): Promise<void> {
  const described = () => onVersion('describe-version', version);
  await expect.poll(described).toMatch(/^ *DrainageStatus +drained$/m);
}

/** Which version executed the last task of a workflow. */
async function versionOf(workflowId: string): Promise<string | null | undefined> {
  const { raw } = await operator.client.workflow.getHandle(workflowId).describe();
  return raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId;
}

/** Creates a session whose model has these scripts. */
async function talk(...scripts: Script[]) {
  const agent = newId('req');
  model.script(agent, ...scripts);
  await api.api.putAgent(agent, { model: { name: agent }, ...onTestServer });
  const sessionId = await api.api.createSession(agent);
  return { sessionId, turn: () => api.api.turn(sessionId, 'go') };
}

/** Expects that a turn ends as it should, on workers of a version. */
async function expectDone(turn: EventReader, version: Version): Promise<void> {
  expect(await turn.end()).toMatchObject({ status: 'done' });
  expect(await versionOf(turnWorkflowId(await turn.turnId()))).toBe(version);
}

/** All failed workflow tasks so far. A history has the first of consecutive failures. */
async function failedTasks(): Promise<unknown[]> {
  const failures: unknown[] = [];
  for await (const { workflowId, runId } of operator.client.workflow.list()) {
    const { events } = await operator.client.workflow.getHandle(workflowId, runId).fetchHistory();
    for (const { workflowTaskFailedEventAttributes: failed } of events ?? []) {
      if (failed) failures.push({ workflowId, message: failed.failure?.message });
    }
  }
  return failures;
}

test('a deploy moves sessions and new turns to the new version, and a rollback moves them back', async () => {
  toolsMayEnd = Promise.withResolvers();
  await workers['1.0'].start();
  const { status, body } = await api.api.send('GET', '/readyz');
  expect([status, body.problems]).toEqual([503, [expect.stringMatching(/versions 1\.0, and none is current/)]]);
  await workers.none.start();
  await expect.poll(async () => (await api.api.send('GET', '/readyz')).status).toBe(200);
  const early = await talk(use({ name: 'wait' }), say('It has waited.'));
  const first = early.turn();
  await expect.poll(() => mcp.calls.length).toBe(1);
  await deploy('1.0');
  const stopped = workers.none.stop();
  toolsMayEnd.resolve();
  await expectDone(first, '1.0');
  expect(await stopped).toBe(0);

  toolsMayEnd = Promise.withResolvers();
  const idle = await talk();
  await expectDone(idle.turn(), '1.0');
  const working = await talk(use({ name: 'wait' }), say('It has waited.'));
  const running = working.turn();
  await expect.poll(() => mcp.calls.length).toBe(2);
  const silent = await talk((call) => void call.text('I am '));
  const speaking = silent.turn();
  await speaking.says('I am');

  await workers['2.0'].start();
  await deploy('2.0');
  await expectDone(idle.turn(), '2.0');
  expect(await versionOf(sessionWorkflowId(idle.sessionId))).toBe('2.0');
  // Commands reach the turns of the old version through sessions of the new one.
  await api.api.send('POST', `/v1/agents/sessions/${silent.sessionId}/cancel`, {});
  expect(await speaking.end()).toMatchObject({ status: 'cancelled' });
  toolsMayEnd.resolve();
  await expectDone(running, '1.0');
  await drained('1.0');
  expect(await workers['1.0'].stop()).toBe(0);
  const fresh = await talk(say('I am new.'), use({ name: 'wait' }), say('It has waited.'));
  for (const { turn } of [early, idle, working, silent, fresh]) await expectDone(turn(), '2.0');

  toolsMayEnd = Promise.withResolvers();
  const last = fresh.turn();
  await expect.poll(() => mcp.calls.length).toBe(3);
  await workers['1.0'].start();
  await deploy('1.0');
  for (const { turn } of [idle, working]) await expectDone(turn(), '1.0');
  toolsMayEnd.resolve();
  await expectDone(last, '2.0');
  await drained('2.0');
  expect(await workers['2.0'].stop()).toBe(0);
  await expectDone(fresh.turn(), '1.0');
});

test('sessions that the old version cannot replay are ended for a rollback, and continue on it', async () => {
  toolsMayEnd = Promise.withResolvers();
  await workers['1.0'].start();
  await deploy('1.0');
  const old = await talk();
  await expectDone(old.turn(), '1.0');
  await workers['3.0'].start();
  await deploy('3.0');
  await expectDone(old.turn(), '3.0');
  const calls = mcp.calls.length;
  const fresh = await talk(use({ name: 'wait' }), say('It has waited.'));
  const running = fresh.turn();
  await expect.poll(() => mcp.calls.length).toBe(calls + 1);
  await expect.poll(() => operator.isIdle(sessionWorkflowId(fresh.sessionId))).toBe(true);

  await deploy('1.0');
  const sessions = `WorkflowType = 'session' AND TemporalWorkerDeploymentVersion = 'everturn:3.0'`;
  const query = `${sessions} AND ExecutionStatus = 'Running'`;
  await cli('workflow', 'terminate', '--query', query, '--reason', 'rollback', '--yes');
  await expect.poll(() => cli('workflow', 'count', '--query', query)).toMatch(/^Total: 0$/m);
  toolsMayEnd.resolve();
  await expectDone(running, '3.0');
  for (const { turn } of [old, fresh]) await expectDone(turn(), '1.0');
  await drained('3.0');
});
