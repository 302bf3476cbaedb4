import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { ActionResource } from '../../src/api/sessions/wire/actions.ts';
import { ActionReader } from '../support/action-reader.ts';
import { byThread, folded, type EventReader } from '../support/api-client.ts';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { eventually } from '../support/eventually.ts';
import { calls, inShort, RunAgent, RunStream, user } from '../support/runs.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** Turns of agents with `pause: "wait"`, which wait for sign-ins to MCP servers and then resume by themselves. */

let notes: ProtectedMcpServer;
let files: ProtectedMcpServer;
let server: TestServer;
beforeAll(async () => {
  [notes, files] = await Promise.all([ProtectedMcpServer.start(), ProtectedMcpServer.start()]);
  server = await startTestServer({ servers: { notes: { url: notes.mcp.url }, files: { url: files.mcp.url } } });
});
afterAll(async () => {
  await server.stop();
  await Promise.all([notes.stop(), files.stop()]);
});
beforeEach(() => {
  notes.user.consents = true;
  notes.rejectsCalls = false;
  notes.requires = undefined;
});
afterEach(async () => {
  const { data } = await server.api.get<{ data: { id: string }[] }>('/v1/agents/mcp/connections');
  for (const { id } of data) await server.api.send('DELETE', `/v1/agents/mcp/connections/${id}`);
  notes.mcp.calls.length = 0;
});

const serverNamed = (name: string) => ({
  type: 'truefoundry-mcp-registry' as const,
  name,
  require_approval_for_tools: [],
});
const spec = { mcp_servers: [serverNamed('notes')], config: { pause: 'wait' as const } };
const local = { subject_slug: 'local' };

/** The links of the last request for sign-ins, when the turn waits for it. */
async function links(reader: EventReader): Promise<string[]> {
  const request = await reader.type('mcp.auth_required');
  await reader.next(({ type, sequence_number: number }) => type === 'turn.paused' && number > request.sequence_number);
  return request.mcp_servers.map(({ auth_url: url }) => url);
}

/** Signs in with a link. Returns the text of the last page. */
async function signIn(url = '', decision?: 'decline'): Promise<string> {
  return (await new TestBrowser().open(url, undefined, decision)).text;
}

async function stateOf({ path }: Chat, reader: EventReader): Promise<object> {
  return (await server.api.get(`${path}/turns/${await reader.turnId()}`)).data.state;
}

/** A run that waits for a sign-in does not hold its readers, who may read it again. */
const completed = (run: { id: string }) =>
  eventually(async () => {
    expect(await server.api.get(`/v1/runs/${run.id}`)).toMatchObject({ status: 'completed' });
  });

const responses = (reader: EventReader) => reader.frames.filter((frame) => frame.type === 'tool.response');
const pauses = (reader: EventReader) => reader.frames.filter(({ type }) => /^turn\.(paused|resumed)$/.test(type));

test('a turn whose model needs a sign-in waits for it, and continues by itself', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'list' }), say('Milk.')], spec });
  const reader = chat.turn('list');
  const [url] = await links(reader);
  expect(await stateOf(chat, reader)).toEqual({ status: 'running', paused: ['sign_in'] });
  expect(chat.requests()).toEqual([]);
  expect(await signIn(url)).toContain('The conversation goes on by itself.');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Milk.' }, required_actions: [] });
  expect(pauses(reader)).toMatchObject([
    { type: 'turn.paused', reason: 'sign_in' },
    { type: 'turn.resumed', reason: 'sign_in', by: local },
  ]);
  const connected = reader.frames.filter((frame) => frame.type === 'mcp.initialize');
  expect(connected.map((frame) => frame.mcp_servers.map(({ name }) => name))).toEqual([[], ['notes']]);
  // The callback again, and a message to the same session.
  expect(await signIn(url)).toContain('has ended');
  chat.script(say('Hello.'));
  expect(await chat.turn('hello').end()).toMatchObject({ output: { content: 'Hello.' } });
  const listed = await server.api.list(`${chat.path}/turns/${await reader.turnId()}/events`);
  expect(listed).toEqual(folded(reader.frames).slice(1, -1));
});

test('a run that begins with calls waits for a sign-in, and then runs them', async () => {
  const run = new RunAgent(server, [say('Milk.')], { toolkits: [{ type: 'mcp', server: 'notes', required: false }] });
  const paused = await run.run([user('list'), calls({ id: 'c1', name: 'list' })]);
  expect(paused).toMatchObject({
    status: 'requires_action',
    required_action: { tool_calls: [], sign_ins: [{ server: 'notes', thread_ids: ['main'], tool_call_ids: [] }] },
  });
  const { id, required_action: action } = paused;
  expect(await server.api.get(`/v1/runs/${id}`)).toEqual(paused);
  const listed = () => server.api.list('/v1/runs?status=requires_action');
  await eventually(async () => expect(await listed()).toMatchObject([{ id, required_action: action }]));
  const waiting = await RunStream.open(server.api, `/v1/runs/${id}/stream`).end();
  expect(waiting).toMatchObject({ event: 'response', ...paused });
  const after = `after_sequence_number=${waiting.sequence_number}`;
  const stream = RunStream.open(server.api, `/v1/runs/${id}/stream?${after}`);
  await stream.headers;
  await signIn(action?.sign_ins?.[0]?.auth_url);
  expect(await stream.end()).toMatchObject({ status: 'completed' });
  expect(inShort(stream.items)).toEqual(['c1 completed', 'model']);
  expect(run.requests).toHaveLength(1);
});

test('a run whose calls need a sign-in says which', async () => {
  const toolkits = [{ type: 'mcp', server: 'notes', required: false }];
  const first = await new RunAgent(server, [say('Hello.')], { toolkits }).run('hello');
  await signIn(first.required_action?.sign_ins?.[0]?.auth_url);
  await completed(first);
  notes.rejectsCalls = true;
  const run = new RunAgent(server, [use({ name: 'add', id: 'a1' }, { name: 'list', id: 'l1' }), say('Done.')], {
    toolkits,
  });
  const paused = await run.run('add and list');
  const signIns = paused.required_action?.sign_ins ?? [];
  expect(signIns.flatMap(({ tool_call_ids: ids }) => ids).toSorted()).toEqual(['a1', 'l1']);
  notes.rejectsCalls = false;
  await signIn(signIns[0]?.auth_url);
  await completed(paused);
});

test('the limit of model calls does not count the one that had to wait', async () => {
  const limited = { ...spec, config: { ...spec.config, iteration_limit: 1 } };
  const chat = await server.chat({ scripts: [say('Once.')], spec: limited });
  const reader = chat.turn('hello');
  await signIn((await links(reader))[0]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Once.' } });
});

test('calls that the server rejects for their token wait, and run once after the sign-in', async () => {
  const first = await server.chat({ scripts: [say('Hello.')], spec });
  const opening = first.turn('hello');
  await signIn((await links(opening))[0]);
  await opening.end();
  notes.rejectsCalls = true;
  const chat = await server.chat({
    scripts: [use({ name: 'add', id: 'a1' }, { name: 'list', id: 'l1' }), say('Done.')],
    spec,
  });
  const reader = chat.turn('add and list');
  await reader.type('turn.paused');
  expect(await stateOf(chat, reader)).toEqual({ status: 'running', paused: ['sign_in'], waiting: ['a1', 'l1'] });
  const answer = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'a1', approval: { status: 'allow' } };
  const refused = await server.api.send('POST', `${chat.path}/actions`, { input: [answer] });
  expect([refused.status, refused.body.error.code]).toEqual([422, 'call_not_pending']);
  expect(refused.body.error.message).toContain('waits for a sign-in');
  notes.rejectsCalls = false;
  await signIn((await links(reader))[0]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  expect(responses(reader)).toMatchObject([{ outcome: 'succeeded' }, { outcome: 'succeeded' }]);
  expect(notes.mcp.calls.map(({ tool }) => tool).toSorted()).toEqual(['add', 'list']);
});

test('a user declines: the model is told, or the call fails, and the turn continues', async () => {
  const chat = await server.chat({ scripts: [say('As you wish.')], spec });
  const reader = chat.turn('list');
  expect(await signIn((await links(reader))[0], 'decline')).toContain('You have declined');
  expect(await reader.end()).toMatchObject({ output: { content: 'As you wish.' } });
  expect(JSON.stringify(chat.requests()[0]?.messages[0])).toContain('the user has declined to sign in');
});

test('the link stays valid while the turn waits, and ends with the turn', async () => {
  const expire = () =>
    server.database.rows.updateTable('mcp_sign_ins').set({ expires_at: '2026-01-01T00:00:00.000Z' }).execute();
  const chat = await server.chat({ scripts: [say('Hello.')], spec });
  const reader = chat.turn('hello');
  const [url = ''] = await links(reader);
  await expire();
  const browser = new TestBrowser();
  // A visit that is not completed does not spoil the link.
  await browser.open(url, ({ pathname }) => pathname.endsWith('/callback'));
  expect((await browser.open(url)).text).toContain('You are signed in');
  expect(await reader.end()).toMatchObject({ status: 'done' });

  const { data } = await server.api.get<{ data: { id: string }[] }>('/v1/agents/mcp/connections');
  for (const { id } of data) await server.api.send('DELETE', `/v1/agents/mcp/connections/${id}`);
  const cancelled = chat.turn('again');
  const [late = ''] = await links(cancelled);
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await cancelled.end()).toMatchObject({ status: 'cancelled' });
  await expire();
  await expect.poll(async () => (await browser.open(late)).status).toBe(404);
});

test('a turn waits for the sign-ins to all of its servers', async () => {
  const both = { ...spec, mcp_servers: [serverNamed('notes'), serverNamed('files')] };
  const chat = await server.chat({ scripts: [say('Both.')], spec: both });
  const reader = chat.turn('hello');
  const [first, second] = await links(reader);
  notes.user.consents = false;
  expect(await signIn(first)).toContain('You have declined');
  expect(await stateOf(chat, reader)).toMatchObject({ status: 'running' });
  expect(await signIn(second)).toContain('You are signed in to files');
  expect(await reader.end()).toMatchObject({ output: { content: 'Both.' } });
  expect(chat.requests()).toHaveLength(1);
});

test('the inbox has a sign-in until the user has ended it or the turn has ended', async () => {
  const both = { ...spec, mcp_servers: [serverNamed('notes'), serverNamed('files')] };
  const chat = await server.chat({ scripts: [say('Both.')], spec: both });
  const inbox = (status: string) =>
    server.api.list<ActionResource>(`/v1/agents/actions?agent_name=${chat.agent}&status=${status}&order=asc`);
  const changes = await ActionReader.open(server.server.url);
  const reader = chat.turn('hello');
  const [first, second] = await links(reader);
  await changes.next(2);
  const waiting = await inbox('pending');
  expect(waiting).toMatchObject([
    { kind: 'sign_in', tool_call_id: null, tool: { server: 'notes', name: null }, auth_url: first, arguments: null },
    { kind: 'sign_in', tool_call_id: null, tool: { server: 'files', name: null }, auth_url: second, arguments: null },
  ]);
  await signIn(first, 'decline');
  await changes.next(3);
  await signIn(second);
  await reader.end();
  const by = expect.objectContaining(local);
  await changes.next(4);
  expect((await inbox('decided')).map(({ status, decisions }) => [status, decisions])).toEqual([
    ['decided', [{ by, decision: 'deny', at: expect.any(String) }]],
    ['decided', [{ by, decision: 'allow', at: expect.any(String) }]],
  ]);

  const other = await server.chat({ spec });
  const cancelled = other.turn('hello');
  await links(cancelled);
  await server.api.send('POST', `${other.path}/cancel`, {});
  await cancelled.end();
  const events = await changes.next(6);
  expect(events.slice(4).map(({ event }) => [event.type, event.action.tool.server, event.action.status])).toEqual([
    ['action.created', 'notes', 'pending'],
    ['action.expired', 'notes', 'superseded'],
  ]);
});

test('one sign-in resumes all turns of the user that wait for the same server', async () => {
  const chats = await Promise.all([1, 2].map((n) => server.chat({ scripts: [say(`Turn ${n}.`)], spec })));
  const readers = chats.map((chat) => chat.turn('hello'));
  const urls = await Promise.all(readers.map(links));
  await signIn(urls[0]?.[0]);
  const ends = await Promise.all(readers.map((reader) => reader.end()));
  expect(ends).toMatchObject([{ output: { content: 'Turn 1.' } }, { output: { content: 'Turn 2.' } }]);
  expect(await signIn(urls[1]?.[0])).toContain('has ended');
});

test('sub-agents wait for one sign-in, and then answer their parent in the same turn', async () => {
  const { agent } = await server.chat({ spec });
  const task = (name: string) => ({ name: 'create_sub_agent', id: name, args: { name, input: 'look', agent } });
  const chat = await server.chat({
    scripts: [use(task('one'), task('two')), say('There is milk.')],
    spec: { agents: [agent], config: spec.config },
  });
  const reader = chat.turn('look');
  await reader.type('turn.paused');
  const requests = reader.frames.filter((frame) => frame.type === 'mcp.auth_required');
  expect(new Set(requests.flatMap(({ servers }) => servers.flatMap(({ thread_ids: ids }) => ids))).size).toBe(2);
  server.model.script(agent, say('Milk.'), say('Milk.'));
  await signIn(requests[0]?.mcp_servers[0]?.auth_url);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'There is milk.' } });
  const replay = await server.api.subscribe(chat.sessionId, await reader.turnId()).done;
  expect(byThread(folded(replay))).toEqual(byThread(folded(reader.frames)));
});

test('a call that needs a further scope waits until the user has allowed it, and fails if that changes nothing', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'add', id: 'a1' }), use({ name: 'add', id: 'a2' })], spec });
  const reader = chat.turn('add');
  notes.requires = 'write';
  await signIn((await links(reader))[0]);
  const request = await reader.next((frame) => frame.type === 'mcp.auth_required' && frame.tool_calls.length > 0);
  const url = request.type === 'mcp.auth_required' ? (request.mcp_servers[0]?.auth_url ?? '') : '';
  await reader.next(({ type, sequence_number: number }) => type === 'turn.paused' && number > request.sequence_number);
  const browser = new TestBrowser();
  expect((await browser.visit(url)).text).toContain('(notes, offline_access, write)');
  expect((await browser.open(url)).text).toContain('You are signed in');
  expect(await reader.next(({ type }) => type === 'tool.response')).toMatchObject({ outcome: 'succeeded' });
  // The authorization server does not have this one.
  notes.requires = 'unknown';
  chat.script(say('Once.'));
  const more = await reader.next(
    (frame) => frame.type === 'mcp.auth_required' && frame.tool_calls.some(({ id }) => id === 'a2'),
  );
  if (more.type === 'mcp.auth_required') await signIn(more.mcp_servers[0]?.auth_url);
  expect(await reader.end()).toMatchObject({ output: { content: 'Once.' } });
  expect(responses(reader)).toMatchObject([{ outcome: 'succeeded' }, { tool_call_id: 'a2', outcome: 'failed' }]);
});

test('beside a question of another tool, both are answered in any order', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'list', id: 'l1' }, { name: 'ask_user_question', args: { question: 'Why?' }, id: 'q1' })],
    spec,
  });
  const opening = chat.turn('hello');
  notes.rejectsCalls = true;
  await signIn((await links(opening))[0]);
  chat.script(say('Done.'));
  await opening.next(({ type }) => type === 'tool.response_required');
  const request = await opening.next((frame) => frame.type === 'mcp.auth_required' && frame.tool_calls.length > 0);
  const answer = { type: 'user.tool_response', thread_id: 'main', tool_call_id: 'q1', content: 'because' };
  await opening.next((frame) => frame.type === 'turn.paused' && frame.reason === 'action');
  expect(await server.api.send('POST', `${chat.path}/actions`, { input: [answer] })).toMatchObject({
    body: { data: { accepted: ['q1'], waiting: ['l1'] } },
  });
  notes.rejectsCalls = false;
  if (request.type === 'mcp.auth_required') await signIn(request.mcp_servers[0]?.auth_url);
  expect(await opening.end()).toMatchObject({ output: { content: 'Done.' } });
  expect(Object.fromEntries(responses(opening).map((one) => [one.tool_call_id, one.content]))).toEqual({
    q1: 'because',
    l1: 'milk',
  });
});
