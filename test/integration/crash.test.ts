import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { inputRequired, type InputRequiredResult } from '@modelcontextprotocol/server';
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import type { Run } from '../../src/api/runs/wire/run.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import { byThread, folded } from '../support/api-client.ts';
import { findDevServer } from '../../src/temporal-server/server-record.ts';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { eventually } from '../support/eventually.ts';
import { TestMcpServer, type RunningCall, type TestTool } from '../support/mcp-server.ts';
import { inShort, RunAgent } from '../support/runs.ts';
import { held, say, ScriptedModel, textOf, use, type Script } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';

/**
 * `kill -9` of the whole server; the embedded Temporal survives. The model, the tools and the effects are outside of it.
 * The tests run together and crash together, because most of the time of a crash is that of the next start.
 */

vi.setConfig({ maxConcurrency: 20 });

const PROTOCOLS = ['2026-07-28', '2025-11-25'] as const;

let dataDir: string;
let model: ScriptedModel;
let mcp: TestMcpServer;
/** Their tools ask the user; each has one version of the protocol. */
let asking: TestMcpServer[];
let server: ServerProcess;
/** Effects by operation id, counted where a crash of the server does not reset them. */
const ledger = new Map<string, number>();
/** The tests that have not ended. */
let running = 0;
/** The calls that wait for a crash. */
let ready: PromiseWithResolvers<void>[] = [];

/** The first call of an operation takes effect and does not respond, if its arguments say so. */
async function takeEffect({ hangs }: Record<string, unknown>, call: RunningCall): Promise<string> {
  const operation = String(call.meta['io.everturn/operation-id']);
  const count = (ledger.get(operation) ?? 0) + 1;
  ledger.set(operation, count);
  if (hangs && count === 1) await new Promise((resolve) => call.signal.addEventListener('abort', resolve));
  return 'done';
}

/** Responds with what the user has answered. */
async function ask({ elicit, inputResponses, protocol }: Asking): Promise<string | InputRequiredResult> {
  const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };
  const question = { message: 'Your name?', requestedSchema };
  if (protocol === '2025-11-25') return JSON.stringify(await elicit(question));
  const given = inputResponses?.['name'];
  return given ? JSON.stringify(given) : inputRequired({ inputRequests: { name: inputRequired.elicit(question) } });
}
type Asking = RunningCall & { protocol: (typeof PROTOCOLS)[number] };

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-crash-'));
  model = await ScriptedModel.start();
  const tools = (handler: NonNullable<TestTool['handler']>): TestTool[] => [
    { name: 'pay', handler },
    { name: 'sync', annotations: { idempotentHint: true }, handler },
    { name: 'refund', annotations: { destructiveHint: true }, handler },
  ];
  mcp = await TestMcpServer.start({ tools: tools(takeEffect) });
  asking = await Promise.all(
    PROTOCOLS.map((protocol) =>
      TestMcpServer.start({ protocol, tools: tools((_, call) => ask({ ...call, protocol })) }),
    ),
  );
  const mcpFile = path.join(dataDir, 'mcp.json');
  const servers = Object.fromEntries(PROTOCOLS.map((protocol, i) => [protocol, { url: asking[i]?.url }]));
  await writeFile(mcpFile, JSON.stringify({ servers: { test: { url: mcp.url }, ...servers } }));
  server = await ServerProcess.prepare(dataDir, {
    EVERTURN_MCP_SERVERS: mcpFile,
    EVERTURN_TOOL_HEARTBEAT_SECONDS: '3',
    EVERTURN_SHUTDOWN_SECONDS: '1',
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
  });
  await server.start();
});

afterAll(async () => {
  await server.stop();
  await model.stop();
  for (const one of [mcp, ...asking]) await one.stop();
  await rm(dataDir, { recursive: true, force: true });
});

beforeEach(({ onTestFinished }) => {
  running += 1;
  onTestFinished(() => {
    running -= 1;
    crashIfReady();
  });
});

/** Resolves after the next crash and start, which come when each test that has not ended waits for them. */
function crash(): Promise<void> {
  const crashed = Promise.withResolvers<void>();
  ready.push(crashed);
  crashIfReady();
  return crashed.promise;
}

function crashIfReady(): void {
  if (ready.length === 0 || ready.length < running) return;
  const crashing = server.kill().then(() => server.start());
  for (const { resolve } of ready) resolve(crashing);
  ready = [];
}

/** A session with an agent whose model runs these scripts. */
async function open(options: {
  on?: string;
  scripts: Script[];
  config?: AgentSpec['config'];
}): Promise<{ name: string; sessionId: string }> {
  const name = newId('req');
  model.script(name, ...options.scripts);
  const registered = { type: 'truefoundry-mcp-registry', name: options.on ?? 'test' };
  const servers = [{ ...registered, require_approval_for_tools: ['refund'] }];
  await server.api.putAgent(name, { model: { name }, mcp_servers: servers, config: options.config });
  return { name, sessionId: await server.api.createSession(name) };
}

/** How often each operation of a turn or of a run took effect. */
function effectsOf(id: string): Record<string, number> {
  return Object.fromEntries([...ledger].filter(([operation]) => operation.startsWith(`${id}/`)));
}

test.concurrent('a crash in mid-stream: the message is repeated, the turn continues, and nothing is duplicated', async () => {
  const first = held(
    (call) => call.text('I was saying '),
    () => undefined,
  );
  const scripts = [first.script, say('I was saying that all is well.')];
  const { name, sessionId } = await open({ scripts });
  const reader = server.api.turn(sessionId, 'go');
  await reader.says('I was saying');
  await crash();
  await reader.done.catch(() => undefined);
  first.release();
  const seen = reader.frames;
  const rest = await server.api.subscribe(sessionId, await reader.turnId(), seen.at(-1)?.sequence_number).done;
  const whole = folded(seen, rest);
  expect(whole.find((event) => 'content' in event && 'tool_calls' in event)).toMatchObject({
    content: 'I was saying that all is well.',
    finish_reason: 'stop',
  });
  const replay = await server.api.subscribe(sessionId, await reader.turnId()).done;
  expect(folded(replay)).toEqual(whole);
  expect(model.requestsTo(name).length).toBe(2);
  // The session is intact: the conversation continues.
  expect(await server.api.turn(sessionId, 'more').end()).toMatchObject({ status: 'done' });
  expect(model.requestsTo(name)[2]?.messages.map(({ content }) => content)).toEqual([
    'go',
    'I was saying that all is well.',
    'more',
  ]);
});

test.concurrent('a crash while sub-agents work: each continues with its conversation, and no effect is doubled', async () => {
  const names = ['a', 'b', 'c'].map((name) => `${name}-${newId('req')}`);
  const start = names.map((name) => ({
    name: 'create_sub_agent',
    id: `call_${name}`,
    args: { name, input: `task ${name}`, model: name },
  }));
  const paused = names.map(() =>
    held(
      (call) => call.text('I was saying '),
      () => undefined,
    ),
  );
  const { name: parent, sessionId } = await open({ scripts: [use(...start), say('All done.')] });
  for (const [i, name] of names.entries()) {
    model.script(name, use({ name: 'pay', id: 'p1' }), paused[i]!.script, say(`${name} is done`));
  }
  const reader = server.api.turn(sessionId, 'go');
  await Promise.all(paused.map(({ reached }) => reached));
  const turnId = await reader.turnId();
  await crash();
  await reader.done.catch(() => undefined);
  for (const { release } of paused) release();
  const rest = server.api.subscribe(sessionId, turnId, reader.frames.at(-1)?.sequence_number);
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: 'All done.' } });
  expect(Object.values(effectsOf(turnId))).toEqual([1, 1, 1]);
  for (const name of names) {
    expect(model.requestsTo(name).map(({ messages }) => messages.length)).toEqual([2, 4, 4]);
  }
  const answers = model
    .requestsTo(parent)
    .at(-1)
    ?.messages.filter(({ role }) => role === 'tool');
  expect(answers?.map(({ content }) => content)).toEqual(names.map((name) => `${name} is done`));
  const replay = await server.api.subscribe(sessionId, turnId).done;
  expect(byThread(folded(reader.frames, await rest.done))).toEqual(byThread(folded(replay)));
});

test.concurrent('a crash while the conversation is summarized: it is summarized once in the log, and the turn continues', async () => {
  const usage = { prompt_tokens: 3_000, completion_tokens: 1, total_tokens: 3_001 };
  const summary = held(
    (call) => call.text('The begin'),
    () => undefined,
  );
  const { name, sessionId } = await open({
    scripts: [(call) => call.text('First.').finish('stop', usage), summary.script, say('All of it.'), say('Second.')],
    config: { context_management: { compaction: { compaction_threshold_tokens: 1_000 } } },
  });
  await server.api.turn(sessionId, 'x'.repeat(3_000)).done;
  const reader = server.api.turn(sessionId, 'go on');
  await summary.reached;
  const turnId = await reader.turnId();
  await crash();
  await reader.done.catch(() => undefined);
  summary.release();
  const end = await server.api.subscribe(sessionId, turnId).end();
  // The usage of the attempt that was lost was never reported.
  expect(end).toMatchObject({
    output: { content: 'Second.' },
    metrics: { total_input_tokens: 20, unreported_attempts: 1 },
  });
  await server.api.turn(sessionId, 'more').done;
  expect(model.requestsTo(name).map(({ messages }) => messages.length)).toEqual([1, 2, 2, 2, 4]);
  expect(textOf(model.requestsTo(name)[4]?.messages[0])).toMatch(/All of it\.$/);
});

test.concurrent('a crash during a tool call: an effect happens at most once, and repeated calls have the same operation id', async () => {
  const calls = [
    { name: 'pay', id: 'p1' },
    { name: 'sync', id: 's1' },
  ].map((one) => ({ ...one, args: { hangs: true } }));
  const { name, sessionId } = await open({ scripts: [use(...calls), say('I see.')] });
  const reader = server.api.turn(sessionId, 'go');
  const turnId = await reader.turnId();
  await eventually(() => expect(Object.values(effectsOf(turnId))).toEqual([1, 1]));
  await crash();
  const rest = server.api.subscribe(sessionId, turnId, reader.frames.at(-1)?.sequence_number);
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: 'I see.' } });
  const events = folded(reader.frames, await rest.done) as { tool_call_id?: string; outcome?: string }[];
  const outcomes = Object.fromEntries(events.flatMap((e) => (e.tool_call_id ? [[e.tool_call_id, e.outcome]] : [])));
  expect(outcomes).toEqual({ p1: 'unknown_outcome', s1: 'succeeded' });
  expect(effectsOf(turnId)).toEqual({ [`${turnId}/p1`]: 1, [`${turnId}/s1`]: 2 });
  const told = model.requestsTo(name)[1]?.messages.find(({ tool_call_id: id }) => id === 'p1');
  expect(told?.content).toMatch(/may or may not have taken effect/);
});

test.concurrent('a crash while an approval is pending: it stays pending, and the approved call runs once', async () => {
  const scripts = [use({ name: 'refund', args: { amount: 5 }, id: 'r1' }), say('Refunded.')];
  const { sessionId } = await open({ scripts });
  const reader = server.api.turn(sessionId, 'go');
  expect(await reader.end()).toMatchObject({ status: 'done', output: null });
  await crash();
  const { data } = await server.api.get(`/v1/agents/sessions/${sessionId}/turns/${await reader.turnId()}`);
  expect(data.state.required_actions[0].tool_calls[0].id).toBe('r1');
  const refused = await server.api.send('POST', `/v1/agents/sessions/${sessionId}/turns`, {
    input: [{ type: 'user.message', content: 'well?' }],
  });
  expect(refused.status).toBe(422);
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'r1', approval: { status: 'allow' } };
  const resumed = server.api.turn(sessionId, [approval]);
  expect(await resumed.end()).toMatchObject({ status: 'done', output: { content: 'Refunded.' } });
  expect(effectsOf(await reader.turnId())).toEqual({ [`${await reader.turnId()}/r1`]: 1 });
  const refunds = mcp.calls.filter(({ tool }) => tool === 'refund');
  expect(refunds.map(({ arguments: args }) => args)).toEqual([{ amount: 5 }]);
});

test.concurrent('a crash while a run waits for its client: it keeps waiting, and continues with the result', async () => {
  const tools = [{ name: 'lookup', description: 'looks up', parameters: { type: 'object' } }];
  const scripts = [use({ name: 'lookup', id: 'c1' }, { name: 'pay', id: 'p1' }), say('Found it.')];
  const one = new RunAgent({ api: server.api, model }, scripts, { tools, toolkits: [{ type: 'mcp', server: 'test' }] });
  const paused = await one.run('go');
  expect([paused.status, ...inShort(paused.output)]).toEqual(['requires_action', 'model c1 p1']);
  await crash();
  expect(await server.api.get(`/v1/runs/${paused.id}`)).toEqual(paused);
  const body = { tool_results: [{ tool_call_id: 'c1', content: 'two' }] };
  const { body: run } = await server.api.send<Run>('POST', `/v1/runs/${paused.id}/resume`, body);
  expect([run.status, ...inShort(run.output)]).toEqual([
    'completed',
    'model c1 p1',
    'c1 completed',
    'p1 completed',
    'model',
  ]);
  expect(Object.values(effectsOf(paused.id))).toEqual([1]);
  expect(one.requests).toHaveLength(2);
});

test.concurrent.each([
  ['2026-07-28', { pay: 'succeeded', sync: 'succeeded' }],
  ['2025-11-25', { pay: 'unknown_outcome', sync: 'succeeded' }],
] as const)(
  'a crash while a server of %s waits for the user: what continues, continues',
  async (protocol, outcomes) => {
    const scripts = [use({ name: 'pay', id: 'pay' }, { name: 'sync', id: 'sync' }), say('I see.')];
    const { sessionId } = await open({ on: protocol, scripts });
    expect(await server.api.turn(sessionId, 'go').end()).toMatchObject({ status: 'done', output: null });
    await crash();
    const answer = (id: string) => ({ action: 'accept', content: { name: `for ${id}` } });
    const resumed = server.api.turn(
      sessionId,
      ['pay', 'sync'].map((id) => ({
        type: 'user.tool_response',
        thread_id: 'main',
        tool_call_id: id,
        content: JSON.stringify(answer(id)),
      })),
    );
    expect(await resumed.end()).toMatchObject({ status: 'done', output: { content: 'I see.' } });
    const responses = folded(await resumed.done) as { tool_call_id?: string; outcome?: string; content?: string }[];
    const ended = responses.filter(({ tool_call_id: id }) => id);
    expect(Object.fromEntries(ended.map((one) => [one.tool_call_id, one.outcome]))).toEqual(outcomes);
    for (const { tool_call_id: id = '', outcome, content } of ended) {
      if (outcome === 'succeeded') expect(content).toBe(JSON.stringify(answer(id)));
    }
  },
);

test.concurrent('repeated crashes after a session was deleted: it stays deleted, and its removal completes', async ({
  onTestFinished,
}) => {
  const scripts = [say('x'.repeat(200_000)), use({ name: 'pay', id: 'p1', args: { hangs: true } })];
  const { sessionId } = await open({ scripts });
  await server.api.turn(sessionId, 'go').done;
  const reader = server.api.turn(sessionId, 'pay');
  const turnId = await reader.turnId();
  await eventually(() => expect(Object.values(effectsOf(turnId))).toEqual([1]));
  const folder = path.join(dataDir, 'blobs', sessionId);
  expect(existsSync(folder)).toBe(true);
  expect((await server.api.send('DELETE', `/v1/agents/sessions/${sessionId}`)).status).toBe(204);
  for (let i = 0; i < 2; i++) {
    await crash();
    for (const url of ['', '/turns', `/turns/${turnId}`]) {
      expect((await server.api.send('GET', `/v1/agents/sessions/${sessionId}${url}`)).status).toBe(404);
    }
  }
  const catalog = new DatabaseSync(path.join(dataDir, 'catalog.db'), { readOnly: true });
  onTestFinished(() => catalog.close());
  const count = (table: string, column: string, value: string) =>
    catalog.prepare(`SELECT count(*) AS n FROM ${table} WHERE ${column} = ?`).get(value)?.['n'];
  const left = () => [
    count('turns', 'session_id', sessionId),
    count('archive', 'turn_id', turnId),
    count('blob_references', 'session_id', sessionId),
    existsSync(folder),
  ];
  await eventually(() => expect(left()).toEqual([0, 0, 0, false]));
  // Completed calls did not run again.
  expect(Object.values(effectsOf(turnId))).toEqual([1]);
});

test.concurrent('crashes while a sign-in is requested, during it and after it: it is requested once, and completes', async ({
  onTestFinished,
}) => {
  const notes = await ProtectedMcpServer.start();
  onTestFinished(() => notes.stop());
  const reached = Promise.withResolvers<void>();
  notes.onMetadata = async () => {
    reached.resolve();
    await new Promise(() => undefined);
  };
  const name = newId('req');
  const spec = { model: { name }, mcp_servers: [{ type: 'inline', name: 'notes', url: notes.mcp.url }] };
  const created = await server.api.send('POST', '/v1/agents/draft-sessions', { agent_spec: spec });
  const sessionId = String(created.body.data.id);
  const cut = server.api.turn(sessionId, 'list');
  const turnId = await cut.turnId();
  await reached.promise;
  notes.onMetadata = () => Promise.resolve();
  await crash();
  const frames = await server.api.subscribe(sessionId, turnId).done;
  const requests = frames.filter(({ type }) => type === 'mcp.auth_required');
  expect(requests).toHaveLength(1);
  const [request] = requests;
  if (request?.type !== 'mcp.auth_required') throw new Error('no sign-in is required');
  const isCallback = ({ pathname }: URL): boolean => pathname.endsWith('/callback');
  const browser = new TestBrowser();
  const { url } = await browser.open(request.mcp_servers[0]?.auth_url ?? '', isCallback);
  await crash();
  expect((await browser.visit(url.href)).text).toContain('You are signed in to notes');
  await crash();
  expect((await browser.visit(url.href)).text).toContain('You are signed in to notes');
  model.script(name, use({ name: 'list' }), say('Milk.'));
  expect(await server.api.turn(sessionId, []).end()).toMatchObject({ status: 'done', output: { content: 'Milk.' } });
  expect(notes.mcp.calls.map(({ tool }) => tool)).toEqual(['list']);
  expect(notes.tokenRequests).toEqual(['authorization_code']);
});

test('a crash after a sign-in, before its waiting turn was notified: the turn resumes once', async ({
  onTestFinished,
}) => {
  const notes = await ProtectedMcpServer.start();
  onTestFinished(() => notes.stop());
  const name = newId('req');
  const spec = {
    model: { name },
    mcp_servers: [{ type: 'inline', name: 'notes', url: notes.mcp.url }],
    config: { pause: 'wait' },
  };
  const created = await server.api.send('POST', '/v1/agents/draft-sessions', { agent_spec: spec });
  const sessionId = String(created.body.data.id);
  model.script(name, use({ name: 'list' }), say('Milk.'));
  const reader = server.api.turn(sessionId, 'list');
  const turnId = await reader.turnId();
  const request = await reader.type('mcp.auth_required');
  await reader.type('turn.paused');
  const browser = new TestBrowser();
  const isCallback = ({ pathname }: URL): boolean => pathname.endsWith('/callback');
  const { url } = await browser.open(request.mcp_servers[0]?.auth_url ?? '', isCallback);
  const temporal = await findDevServer(path.join(dataDir, 'temporal', 'temporal.db'));
  if (!temporal) throw new Error('the embedded Temporal does not run');
  // While Temporal does not answer, the sign-in is complete, and its turn is not notified.
  process.kill(temporal.pid, 'SIGSTOP');
  const page = browser.visit(url.href).catch(() => undefined);
  const catalog = new DatabaseSync(path.join(dataDir, 'catalog.db'), { readOnly: true });
  onTestFinished(() => catalog.close());
  const signIn = () => ({
    ...catalog.prepare('SELECT status, told FROM mcp_sign_ins WHERE turn_id = ?').get(turnId),
  });
  await expect.poll(signIn).toEqual({ status: 'granted', told: 0 });
  await server.kill();
  process.kill(temporal.pid, 'SIGCONT');
  expect(await page).toBeUndefined();
  await reader.done.catch(() => undefined);
  await server.start();
  const rest = server.api.subscribe(sessionId, turnId, reader.frames.at(-1)?.sequence_number);
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: 'Milk.' } });
  const whole = folded(reader.frames, await rest.done) as { type: string }[];
  expect(whole.filter(({ type }) => type === 'turn.resumed')).toMatchObject([{ reason: 'sign_in' }]);
  expect(notes.mcp.calls.map(({ tool }) => tool)).toEqual(['list']);
  expect(signIn()).toEqual({ status: 'granted', told: 1 });
});

test('a graceful stop: model calls are handed over and tools finish', async () => {
  const first = held(
    (call) => call.text('Half a '),
    () => undefined,
  );
  const { sessionId } = await open({ scripts: [first.script, say('Half a word.')] });
  const reader = server.api.turn(sessionId, 'go');
  await reader.says('Half a');
  expect(await server.stop()).toBe(0);
  first.release();
  await server.start();
  const rest = server.api.subscribe(sessionId, await reader.turnId(), reader.frames.at(-1)?.sequence_number);
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: 'Half a word.' } });
});
