import path from 'node:path';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { homedir, hostname, tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { freePort } from '../../src/lib/processes.ts';
import { everturn } from '../support/command-line.ts';
import { TestMcpServer, type RunningCall } from '../support/mcp-server.ts';
import { Exposition } from '../support/prometheus.ts';
import { held, say, ScriptedModel, use, type Script } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { openRows } from '../support/test-database.ts';
import { onTestServer } from '../support/test-server.ts';

/** On a server with its own Temporal, as an operator would who examines a turn. */

/** Each call starts a process, which is slow on a busy machine. */
const LONG = 240_000;

let folder: string;
let model: ScriptedModel;
let mcp: TestMcpServer;
let server: ServerProcess;
let env: Record<string, string>;
let rows: ReturnType<typeof openRows>;
/** Resolves the call of the tool `pay`. */
let paid: PromiseWithResolvers<string>;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-inspect-'));
  model = await ScriptedModel.start();
  paid = Promise.withResolvers();
  mcp = await TestMcpServer.start({
    tools: [
      { name: 'pay', handler: (_: unknown, { signal }: RunningCall) => untilPaid(signal) },
      { name: 'refund', annotations: { destructiveHint: true }, handler: () => 'done' },
    ],
  });
  const mcpFile = path.join(folder, 'mcp.json');
  await writeFile(
    mcpFile,
    JSON.stringify({ servers: { test: { url: mcp.url, headers: { 'x-key': 'key-of-tools' } } } }),
  );
  const cache = path.join(folder, 'cache');
  await mkdir(path.join(cache, 'everturn'), { recursive: true });
  const ownCache = process.env['XDG_CACHE_HOME'] ?? path.join(homedir(), '.cache');
  await symlink(path.join(ownCache, 'everturn', 'bin'), path.join(cache, 'everturn', 'bin'));
  env = {
    EVERTURN_DATA: path.join(folder, 'data'),
    EVERTURN_MCP_SERVERS: mcpFile,
    EVERTURN_SHUTDOWN_SECONDS: '1',
    EVERTURN_METRICS_PORT: String(await freePort()),
    OPENAI_API_KEY: 'key-of-models',
    OPENAI_BASE_URL: model.url,
    XDG_CACHE_HOME: cache,
  };
  server = await ServerProcess.prepare(path.join(folder, 'data'), env);
  await server.start();
  rows = openRows(`sqlite:${path.join(folder, 'data', 'catalog.db')}`);
}, LONG);

afterAll(async () => {
  paid.resolve('paid');
  await rows.destroy();
  await server.stop();
  await model.stop();
  await mcp.stop();
  await rm(folder, { recursive: true, force: true });
}, LONG);

/** A session with an agent whose model runs these scripts. */
async function scripted(...scripts: Script[]): Promise<string> {
  const name = newId('req');
  model.script(name, ...scripts);
  await server.api.putAgent(name, { ...onTestServer, model: { name } });
  return server.api.createSession(name);
}

async function untilPaid(signal: AbortSignal): Promise<string> {
  const left = new Promise<string>((resolve) => signal.addEventListener('abort', () => resolve('')));
  return Promise.race([paid.promise, left]);
}

async function inspect(turnId: string, ...options: string[]): Promise<string> {
  const { code, stdout, stderr } = await everturn(['turn', 'inspect', turnId, ...options], env);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).not.toMatch(/key-of-/);
  return stdout;
}

/** Resolves when a call of a turn is under way, as the timeline shows: a report is a process of its own. */
async function pendingCall(sessionId: string, turnId: string, span: object): Promise<void> {
  const timeline = `/v1/agents/sessions/${sessionId}/turns/${turnId}/timeline`;
  await expect
    .poll(async () => (await server.api.get(timeline)).data)
    .toContainEqual(expect.objectContaining({ pending: true, ...span }));
}

/** Resolves when a turn is in the archive as a whole. */
async function archived(turnId: string): Promise<void> {
  const turn = rows.selectFrom('turns').select('archived').where('id', '=', turnId);
  await expect.poll(() => turn.executeTakeFirst()).toEqual({ archived: 1 });
}

/** Adds two turns to the catalog that Temporal does not have: one that has not started, and one whose workflow is lost. */
async function insertTurns(): Promise<{ claimed: string; lost: string }> {
  const [claimed, lost] = [newId('turn'), newId('turn')];
  const row = { session_id: 'ses_1', previous_turn_id: null, created_at: new Date().toISOString() };
  await rows
    .insertInto('turns')
    .values([
      { ...row, id: claimed, sequence: null },
      { ...row, id: lost, sequence: 1 },
    ])
    .execute();
  return { claimed, lost };
}

test(
  'a turn that waits for an approval: its log line by line, and the waiting call with its start',
  async () => {
    const sessionId = await scripted(use({ name: 'refund', id: 'r1' }), say('Refunded.'));
    // Characters that a terminal would take for a command or another writing direction.
    const first = server.api.turn(sessionId, 'Give it back.\u009b2J\u202e');
    await first.done;
    const turnId = await first.turnId();
    const text = await inspect(turnId);
    expect(text).toMatch(
      new RegExp(`^turn +${turnId}\nsession +${sessionId}\nprevious +none\nstate +action_required\n`),
    );
    const time = String.raw`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`;
    for (const line of [
      `1  ${time}  turn.created            by local: "Give it back.�2J�"`,
      `2  ${time}  mcp.initialize          test`,
      `3  ${time}  model.message           calls refund as r1 \\(tool_calls, 10 tokens in, 5 out\\)`,
      `4  ${time}  tool.approval_required  r1`,
      `5  ${time}  turn.done               done`,
      `It waits for\n  an approval of the tool call r1 \\(refund\\) since ${time}`,
    ]) {
      expect(text).toMatch(new RegExp(`^${line}$`, 'm'));
    }
    const approval = {
      type: 'user.tool_approval',
      thread_id: 'main',
      tool_call_id: 'r1',
      approval: { status: 'allow' },
    };
    await server.api.turn(sessionId, [approval]).done;
    expect(await inspect(turnId)).toMatch(/answered by a later turn[^]*It waits for nothing\.\n$/);
    await archived(turnId);
    const report = JSON.parse(await inspect(turnId, '--json')) as Record<string, unknown>;
    expect(report).toMatchObject({
      turnId,
      sessionId,
      state: 'action_required',
      archive: { through: 5, complete: true },
      isFollowed: true,
      waitsFor: [],
      problems: [],
    });
    expect(report['log']).toHaveLength(5);
  },
  LONG,
);

test(
  'a running turn: its current model or tool call with its start, the attempt and the last failure',
  async () => {
    const sessionId = await scripted(
      (call) => call.fail(503, 'too much to do', { 'retry-after': '120' }),
      use({ name: 'pay', id: 'p1' }),
    );
    const asking = server.api.turn(sessionId, 'hi');
    const askingId = await asking.turnId();
    await pendingCall(sessionId, askingId, { attempt: 2 });
    expect(await inspect(askingId)).toMatch(
      /^state +running$[^]*^ {2}the model since .*, attempt 2, scheduled.*, the last attempt failed: overloaded: "openai\/req_\w+ answered 503: too much to do"$/m,
    );
    const paying = server.api.turn(sessionId, 'pay');
    const payingId = await paying.turnId();
    await pendingCall(sessionId, payingId, { kind: 'tool_call', worker: expect.any(String) });
    expect(await inspect(payingId)).toMatch(/^ {2}the tool call p1 \(pay\) since .*, attempt 1, started, on \d+@/m);
    paid.resolve('paid');
    await paying.done;
    expect(await inspect(askingId)).toMatch(/^\d .* turn\.done .* cancelled: cancelled-for-next-turn$/m);
  },
  LONG,
);

test(
  'a turn without an end: requested if it has not started, unknown if it is lost',
  async () => {
    const { claimed, lost } = await insertTurns();
    const asked = await inspect(claimed);
    expect(asked).toMatch(
      /^state +requested$[^]*^problem +it was requested at .*, and its session has not started it$/m,
    );
    expect(asked).toMatch(/^It is not known what it waits for\.$/m);
    expect(await inspect(lost)).toMatch(/^state +unknown$[^]*^problem +its archived log is incomplete.*is lost$/m);
  },
  LONG,
);

test('an unknown turn is named', async () => {
  const { code, stdout, stderr } = await everturn(['turn', 'inspect', 'turn_none'], env);
  expect([code, stdout, stderr]).toEqual([
    1,
    '',
    'everturn: Neither the catalog nor Temporal has the turn turn_none\n',
  ]);
});

test(
  'a turn whose workflow code does not match its history: the report and the metrics say so',
  async () => {
    const first = held(
      (call) => call.text('I am '),
      () => undefined,
    );
    const sessionId = await scripted(first.script, say('I am back.'));
    const reader = server.api.turn(sessionId, 'hi');
    await reader.says('I am');
    const turnId = await reader.turnId();
    // The text is sent before the turn's workflow has run.
    await pendingCall(sessionId, turnId, { kind: 'model_call' });
    expect(await inspect(turnId)).toMatch(/^ {2}the model since /m);
    await server.kill();
    await reader.done.catch(() => undefined);
    first.release();
    // A deploy of code that calls an activity by another name.
    const workflows = path.join(env['XDG_CACHE_HOME'] ?? '', 'everturn', 'workflows');
    const [bundle = ''] = await readdir(workflows);
    const file = path.join(workflows, bundle);
    await cp(file, `${file}.right`);
    await writeFile(file, (await readFile(file, 'utf8')).replaceAll('callModel', 'callAnyModel'));
    await server.start();
    const scrape = async () => {
      const response = await fetch(`http://127.0.0.1:${env['EVERTURN_METRICS_PORT']}/metrics`);
      return new Exposition(await response.text());
    };
    await expect
      .poll(async () => (await scrape()).value('everturn_stuck_workflows', { type: 'turn' }), {
        interval: 500,
      })
      .toBe(1);
    expect(await inspect(turnId)).toMatch(
      new RegExp(
        `^problem +the turn is stuck: the workflow task of turn/${turnId} has failed \\d+ times since .*: .*Nondeterminism`,
        'm',
      ),
    );
    const failures = (await scrape()).all('temporal_workflow_task_execution_failed_total', { workflow_type: 'turn' });
    expect(failures.reduce((sum, { value }) => sum + value, 0)).toBeGreaterThan(1);

    // Back to the matching code: the turn continues by itself.
    await server.stop();
    await cp(`${file}.right`, file);
    await server.start();
    const end = server.api.subscribe(sessionId, turnId);
    expect(await end.end()).toMatchObject({ status: 'done', output: { content: 'I am back.' } });
  },
  LONG,
);

// Ends the server, which no later test needs.
test(
  'the attempts of a call whose worker was killed are shown, and are in the timeline of the turn',
  async () => {
    const started = Promise.withResolvers<void>();
    const sessionId = await scripted(async (call) => {
      await call.text('I am').sent();
      started.resolve();
      await call.closed;
    }, say('here again'));
    const reader = server.api.turn(sessionId, 'go');
    const turnId = await reader.turnId();
    await started.promise;
    const at = `/v1/agents/sessions/${sessionId}/turns/${turnId}`;
    await pendingCall(sessionId, turnId, { kind: 'model_call', attempt: 1, worker: `${server.pid}@${hostname()}` });
    // After its first heartbeat.
    await sleep(2_000);
    const killed = `${server.pid}@${hostname()}`;
    await server.kill();
    await reader.done.catch(() => undefined);
    await server.start();
    expect(await server.api.followTurn(sessionId, turnId).end()).toMatchObject({ status: 'done' });
    const spans = await server.api.list(`${at}/timeline`);
    const called = { kind: 'model_call', provider: 'openai', pending: false };
    expect(spans).toMatchObject([
      { ...called, attempt: 1, outcome: 'lost', worker: killed, ended_at: expect.any(String) },
      { ...called, attempt: 2, outcome: 'answered', worker: `${server.pid}@${hostname()}` },
    ]);
    const text = await inspect(turnId);
    expect(text).toMatch(new RegExp(`^ +attempt 1: .* on ${killed}, openai/.*, lost$`, 'm'));
    expect(text).toMatch(/^ +attempt 2: .*, completed$/m);
  },
  LONG,
);

test(
  'without Temporal archived turns can be inspected, and the state of others is unknown',
  async () => {
    const turn = server.api.turn(await scripted(say('Done.')), 'hi');
    await turn.done;
    const turnId = await turn.turnId();
    await archived(turnId);
    const { claimed, lost } = await insertTurns();
    await server.stop();
    expect(await inspect(turnId)).toMatch(/^workflow +unknown$[^]*^\d .* done$/m);
    for (const id of [claimed, lost]) {
      expect(await inspect(id)).toMatch(/^state +unknown$[^]*^problem +its log .*, and no Temporal is running/m);
    }
  },
  LONG,
);
