import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { decodeArrayFromPayloads } from '../../src/temporal/sdk-internals.ts';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { commandTurn, createTurn } from '../../workflows/messages.ts';
import type { CreateTurnCommand } from '../../src/core/session.ts';
import { createTurnCommand } from '../support/create-turn-command.ts';
import { byThread, folded } from '../support/api-client.ts';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { late } from '../support/mcp-server.ts';
import { DELETES_RUNS_AT_ONCE, startOwnTemporal, type OwnTemporal } from '../support/own-temporal.ts';
import { delegate, DelegatingChats } from '../support/delegating-chats.ts';
import { held, say, use, type Script } from '../support/scripted-model.ts';
import { testConverter } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** A Temporal that suggests continue-as-new after 30 events; the default is 4,000. */

const journal = fileURLToPath(new URL('../support/journal-server.ts', import.meta.url));

let temporal: OwnTemporal;
let server: TestServer;
let connection: Connection;
let client: Client;
beforeAll(async () => {
  temporal = await startOwnTemporal({
    'limit.historyCount.suggestContinueAsNew': 30,
    // Otherwise runs as short as these would each be delayed by a second.
    'history.continueAsNewMinInterval': '20ms',
    ...DELETES_RUNS_AT_ONCE,
  });
  server = await startTestServer({
    env: { TEMPORAL_ADDRESS: temporal.address },
    servers: { journal: { command: process.execPath, args: [journal] } },
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: ({ n }) => late(`seen ${String(n)}`) },
        { name: 'pay', handler: () => 'paid' },
      ],
    },
  });
  connection = await Connection.connect({ address: temporal.address });
  client = new Client({ connection, namespace: temporal.namespace, ...testConverter() });
});
afterAll(async () => {
  await connection.close();
  await server.stop();
  await temporal.stop();
});

async function runsOf(workflowId: string): Promise<number> {
  let runs = 0;
  for await (const _ of client.workflow.list({ query: `WorkflowId = '${workflowId}'` })) runs += 1;
  return runs;
}

test('a turn of twenty steps spans several runs with one log, one stream and one conversation', async () => {
  const steps = Array.from({ length: 20 }, (_, n): Script => use({ name: 'look', args: { n }, id: `c${n}` }));
  const chat = await server.chat({ scripts: [...steps, say('That was all.')], spec: onTestServer });
  const reader = chat.turn('look twenty times');
  const turnId = await reader.turnId();
  // A reader that joins in the middle, and others that resume from old cursors.
  await reader.next((frame) => frame.type === 'tool.response' && frame.tool_call_id === 'c10');
  const joined = server.api.subscribe(chat.sessionId, turnId);
  const cut = reader.frames.slice(0, 30);
  const resumed = server.api.subscribe(chat.sessionId, turnId, cut.at(-1)?.sequence_number);
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'That was all.' } });
  const whole = folded(frames);
  expect(folded(await joined.done)).toEqual(whole);
  expect(folded(cut, await resumed.done)).toEqual(whole);
  expect(await server.api.list(`${chat.path}/turns/${turnId}/events`, 9)).toEqual(whole.slice(1, -1));
  await expect.poll(() => runsOf(turnWorkflowId(turnId))).toBeGreaterThan(3);
  // Each step gets the results of all steps before it.
  for (const [n, request] of chat.requests().entries()) {
    expect(request.messages.filter(({ role }) => role === 'tool').length).toBe(n);
  }
  expect(await reader.end()).toMatchObject({ metrics: { total_input_tokens: 210, model_calls: 21, tool_calls: 20 } });
  // The whole log is in the archive, including the runs that closed long before the turn.
  const replay = await server.api.subscribe(chat.sessionId, turnId).done;
  expect(folded(replay)).toEqual(whole);
});

test('sub-agents that work in parallel continue as new together, also while one of them waits', async () => {
  const chat = await server.chat({
    spec: { ...onTestServer, client_tools: [{ name: 'ask', input_schema: { type: 'object' } }] },
  });
  const modelOf = (name: string) => `${chat.agent}-${name}`;
  const start = (...names: string[]) =>
    use(
      ...names.map((name) => ({
        name: 'create_sub_agent',
        id: `call_${name}`,
        args: { name, input: `the task of ${name}`, model: modelOf(name) },
      })),
    );
  const looks = (count: number) =>
    Array.from({ length: count }, (_, n) => use({ name: 'look', args: { n }, id: `c${n}` }));
  server.model.script(modelOf('long'), ...looks(8), start('nested'), say('long is done'));
  server.model.script(modelOf('nested'), ...looks(5), say('nested is done'));
  server.model.script(modelOf('other'), ...looks(6), say('other is done'));
  server.model.script(modelOf('asking'), use({ name: 'ask', id: 'q1' }), say('asking is done'));
  chat.script(start('long', 'other', 'asking'), say('All done.'));
  const reader = chat.turn('go');
  const frames = await reader.done;
  const turnId = await reader.turnId();
  await expect.poll(() => runsOf(turnWorkflowId(turnId))).toBeGreaterThan(3);
  const asked = frames.find((frame) => frame.type === 'tool.response_required');
  if (asked?.type !== 'tool.response_required') throw new Error('nothing is asked');
  const input = [{ type: 'user.tool_response', thread_id: asked.thread_id, tool_call_id: 'q1', content: 'yes' }];
  expect(await chat.turn(input).end()).toMatchObject({ status: 'done', output: { content: 'All done.' } });
  for (const [name, count] of [
    ['long', 10],
    ['nested', 6],
    ['other', 7],
    ['asking', 2],
  ] as const) {
    const requests = server.model.requestsTo(modelOf(name));
    expect(requests.map(({ messages }) => messages.length)).toEqual(Array.from({ length: count }, (_, n) => 2 + 2 * n));
  }
  const answers = chat.requests()[1]?.messages.filter(({ role }) => role === 'tool');
  expect(answers?.map(({ content }) => content)).toEqual(['long is done', 'other is done', 'asking is done']);
  const replay = await server.api.subscribe(chat.sessionId, turnId).done;
  expect(byThread(folded(replay))).toEqual(byThread(folded(frames)));
});

test('a turn that waits for a sign-in does so in its next runs', async () => {
  const notes = await ProtectedMcpServer.start();
  onTestFinished(() => notes.stop());
  const chat = await server.chat({
    scripts: [use({ name: 'list' }), say('Milk.')],
    spec: { mcp_servers: [{ type: 'inline', name: 'notes', url: notes.mcp.url }], config: { pause: 'wait' } },
  });
  const reader = chat.turn('list');
  const request = await reader.type('mcp.auth_required');
  await reader.type('turn.paused');
  const workflowId = turnWorkflowId(await reader.turnId());
  const by = { subjectId: 'local', subjectType: 'user', subjectSlug: 'local' };
  for (let i = 0; (await runsOf(workflowId)) < 2; i++) {
    await client.workflow
      .getHandle(workflowId)
      .signal(commandTurn, { type: 'sign_in', id: `sign-in ${i}`, signInId: `other-${i}`, by });
  }
  expect((await new TestBrowser().open(request.mcp_servers[0]?.auth_url ?? '')).text).toContain('You are signed in');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Milk.' } });
});

test('an approval expires, whichever task of a run has asked for it', async () => {
  const asks = { match: { tool: 'pay' }, decision: 'ask', expires_in_seconds: 1, on_expiry: 'deny' } as const;
  // In one of these the run that asks continues as new in the task in which it asks.
  const ends = [0, 1, 2, 3].map(async (count) => {
    const steps = Array.from({ length: count }, (_, n): Script => use({ name: 'look', args: { n }, id: `c${n}` }));
    const chat = await server.chat({
      scripts: [...steps, use({ name: 'pay', id: 'p1' }), say('Not paid.')],
      spec: { ...onTestServer, config: { pause: 'wait', decision_policies: [asks] } },
    });
    return chat.turn('pay').end();
  });
  expect(await Promise.all(ends)).toEqual(
    ends.map(() =>
      expect.objectContaining({ status: 'done', output: expect.objectContaining({ content: 'Not paid.' }) }),
    ),
  );
});

test('a call that waits behind one that a person decides does so in the next runs of its turn', async () => {
  const steps = Array.from({ length: 6 }, (_, n): Script => use({ name: 'test__look', args: { n }, id: `c${n}` }));
  const calls = use(
    { name: 'journal__write', id: 'w1', args: { id: 'w1' } },
    { name: 'journal__read', id: 'r2', args: { id: 'r2' } },
  );
  const mcpServers = [{ type: 'truefoundry-mcp-registry' as const, name: 'journal' }, ...onTestServer.mcp_servers];
  const chat = await server.chat({
    scripts: [...steps, calls, say('So it is.')],
    spec: { mcp_servers: mcpServers, config: { pause: 'wait' } },
  });
  const reader = chat.turn('go');
  const turnId = await reader.turnId();
  await reader.type('turn.paused');
  const runs = await runsOf(turnWorkflowId(turnId));
  while ((await runsOf(turnWorkflowId(turnId))) < runs + 1) {
    for (const command of ['pause', 'resume']) await server.api.send('POST', `${chat.path}/${command}`, {});
  }
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  await server.api.send('POST', `${chat.path}/actions`, { input: [approval] });
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'So it is.' } });
  const results = (await reader.done).flatMap((one) => (one.type === 'tool.response' ? [one.content] : []));
  expect(results.slice(-2)).toEqual(['done', 'w1']);
});

test('a turn that waits for another agent does so in its next runs', async () => {
  const chats = await DelegatingChats.open(server.database.url);
  onTestFinished(() => chats.catalog.close());
  const child = held(
    (call) => call.text('Later'),
    (call) => call.text('.').finish(),
  );
  const chat = await chats.chat(server, {
    scripts: [delegate('child'), say('Done.')],
    delegates: { child: { scripts: [child.script] } },
  });
  const reader = chat.turn('go');
  await child.reached;
  await reader.type('turn.paused');
  const turnId = await reader.turnId();
  while ((await runsOf(turnWorkflowId(turnId))) < 2) {
    for (const command of ['pause', 'resume']) await server.api.send('POST', `${chat.path}/${command}`, {});
  }
  child.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  const responses = reader.frames.filter((frame) => frame.type === 'tool.response');
  expect(responses).toMatchObject([{ tool_call_id: 'call_child', outcome: 'succeeded', content: 'Later.' }]);
});

test('sub-agents of a turn that waits for answers do so in its next runs', async () => {
  const ask = { name: 'ask', input_schema: { type: 'object' } };
  const chat = await server.chat({
    spec: { ...onTestServer, client_tools: [ask], config: { pause: 'wait' } },
  });
  const modelOf = (name: string) => `${chat.agent}-${name}`;
  const start = ['asking', 'looking'].map((name) => ({
    name: 'create_sub_agent',
    id: `call_${name}`,
    args: { name, input: 'a task', model: modelOf(name) },
  }));
  const looks = Array.from({ length: 15 }, (_, n) => use({ name: 'look', args: { n }, id: `c${n}` }));
  server.model.script(modelOf('looking'), ...looks, say('seen'));
  server.model.script(modelOf('asking'), use({ name: 'ask', id: 'q1' }), say('answered'));
  chat.script(use(...start), say('All done.'));
  const reader = chat.turn('go');
  const asked = await reader.type('tool.response_required');
  await reader.next((frame) => frame.type === 'thread.done');
  const turnId = await reader.turnId();
  await expect.poll(() => runsOf(turnWorkflowId(turnId))).toBeGreaterThan(1);
  const input = [{ type: 'user.tool_response', thread_id: asked.thread_id, tool_call_id: 'q1', content: 'yes' }];
  expect((await server.api.send('POST', `${chat.path}/actions`, { input })).status).toBe(200);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'All done.' } });
  const answers = chat.requests()[1]?.messages.filter(({ role }) => role === 'tool');
  expect(answers?.map(({ content }) => content)).toEqual(['answered', 'seen']);
  const replay = await server.api.subscribe(chat.sessionId, turnId).done;
  expect(byThread(folded(replay))).toEqual(byThread(folded(await reader.done)));
});

test('a deleted session leaves no run of its turns', async () => {
  const steps = Array.from({ length: 13 }, (_, n): Script => use({ name: 'look', args: { n }, id: `c${n}` }));
  const chat = await server.chat({ scripts: steps, spec: onTestServer });
  const reader = chat.turn('look');
  await reader.done;
  const workflowId = turnWorkflowId(await reader.turnId());
  await expect.poll(() => runsOf(workflowId)).toBeGreaterThan(2);
  expect((await server.api.send('DELETE', chat.path)).status).toBe(204);
  await expect.poll(() => runsOf(workflowId)).toBe(0);
});

test('the iteration limit counts across runs', async () => {
  const chat = await server.chat({
    scripts: Array.from({ length: 20 }, (): Script => use({ name: 'look', args: { n: 0 } })),
    spec: { ...onTestServer, config: { iteration_limit: 8 } },
  });
  expect(await chat.turn('go').end()).toMatchObject({ status: 'error', message: expect.stringContaining('8') });
  expect(chat.requests().length).toBe(8);
});

test('a turn that answers at its limit of model calls does so in a later run', async () => {
  const chat = await server.chat({
    scripts: Array.from({ length: 20 }, (): Script => use({ name: 'look', args: { n: 0 } })),
    spec: { ...onTestServer, config: { iteration_limit: 8, on_limit: 'answer' } },
  });
  const reader = chat.turn('go');
  expect(await reader.end()).toMatchObject({ status: 'done', limit: 'iterations' });
  const choices = chat.requests().map((request) => request.tool_choice);
  expect(choices).toEqual([...Array.from({ length: 7 }, () => undefined), 'none']);
  await expect.poll(async () => runsOf(turnWorkflowId(await reader.turnId()))).toBeGreaterThan(1);
  const replay = await server.api.subscribe(chat.sessionId, await reader.turnId()).done;
  expect(folded(replay)).toEqual(folded(await reader.done));
});

test('a cancel reaches the current run', async () => {
  const steps = Array.from({ length: 6 }, (_, n): Script => use({ name: 'look', args: { n } }));
  const last = held(
    (call) => call.text('hold'),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [...steps, last.script], spec: onTestServer });
  const reader = chat.turn('go');
  await last.reached;
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
  await expect.poll(async () => runsOf(turnWorkflowId(await reader.turnId()))).toBeGreaterThan(1);
  last.release();
});

test('a session continues as new between its turns and loses nothing', async () => {
  const chat = await server.chat({ scripts: Array.from({ length: 7 }, (_, n) => say(`answer ${n}`)) });
  for (let n = 0; n < 7; n++) expect((await chat.turn(`question ${n}`).end()).status).toBe('done');
  await expect.poll(() => runsOf(sessionWorkflowId(chat.sessionId))).toBeGreaterThan(1);
  expect(chat.requests().at(-1)?.messages.length).toBe(13);
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(7);
});

test('commands that arrive while a session continues as new are executed once', async () => {
  const chat = await server.chat();
  // Enough concurrent commands that some arrive while a run closes.
  for (let round = 0; round < 6; round++) {
    const readers = Array.from({ length: 4 }, (_, n) => chat.turn(`round ${round}, number ${n}`));
    for (const reader of readers) await reader.end();
  }
  const turns = await server.api.list<{ id: string; previous_turn_id: string | null }>(`${chat.path}/turns`, 25);
  expect(turns.length).toBe(24);
  for (const [i, turn] of turns.entries()) expect(turn.previous_turn_id).toBe(turns[i + 1]?.id ?? null);
});

test('a command that is repeated after later ones returns the turn that it started', async () => {
  const chat = await server.chat();
  const first = chat.turn('first');
  await first.done;
  await chat.turn('second').done;
  const turnId = await first.turnId();
  const command = createTurnCommand(turnId, 'first');
  const session = client.workflow.getHandle(sessionWorkflowId(chat.sessionId));
  const again = await session.executeUpdate(createTurn, { args: [command] });
  expect(again).toEqual({ turnId, previousTurnId: null, sequence: 1 });
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(2);
  expect(chat.requests().length).toBe(2);
});

test('a later run of a session recognises the repetition of what an earlier one has carried out', async () => {
  const chat = await server.chat();
  const session = client.workflow.getHandle(sessionWorkflowId(chat.sessionId));
  const turnIds: string[] = [];
  const ask = async (): Promise<void> => {
    const reader = chat.turn(`question ${turnIds.length}`);
    await reader.done;
    turnIds.push(await reader.turnId());
  };
  /** The session's current run, once it has handled the end of the last turn. */
  const idleRun = async (): Promise<string> => {
    const idle = async () => {
      const { raw, runId } = await session.describe();
      return raw.pendingWorkflowTask || raw.pendingChildren?.length ? '' : runId;
    };
    await expect.poll(idle).not.toBe('');
    return idle();
  };
  await ask();
  const firstRun = await idleRun();
  while ((await idleRun()) === firstRun) await ask();
  const { events } = await client.workflow.getHandle(session.workflowId, firstRun).fetchHistory();
  const payloads = (events ?? []).flatMap(
    (event) => event.workflowExecutionUpdateAcceptedEventAttributes?.acceptedRequest?.input?.args?.payloads ?? [],
  );
  const commands = await decodeArrayFromPayloads(client.options.loadedDataConverter, payloads);
  const repeat = (index: number) =>
    session.executeUpdate(createTurn, {
      updateId: turnIds[index] ?? '',
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an argument of this Update
      args: [commands[index] as CreateTurnCommand],
    });
  const newest = turnIds.length - 1;
  const accepted = { turnId: turnIds[newest], previousTurnId: turnIds[newest - 1], sequence: newest + 1 };
  // The first command of the new run.
  expect(await repeat(newest)).toEqual(accepted);
  await ask();
  expect(await repeat(newest)).toEqual(accepted);
  expect(await repeat(0)).toEqual({ turnId: turnIds[0], previousTurnId: null, sequence: 1 });
  const turns = await server.api.list<{ id: string }>(`${chat.path}/turns`, 25);
  expect(turns.map(({ id }) => id)).toEqual(turnIds.toReversed());
  expect(chat.requests().length).toBe(turnIds.length);
});

test('a rejected command leaves nothing in the history of its session', async () => {
  const chat = await server.chat();
  await chat.turn('hi').done;
  const handle = client.workflow.getHandle(sessionWorkflowId(chat.sessionId));
  const updates = async () =>
    (await handle.fetchHistory()).events?.filter((event) => event.workflowExecutionUpdateAcceptedEventAttributes)
      .length;
  expect(await updates()).toBe(1);
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'x', approval: { status: 'allow' } };
  const refused = await server.api.send('POST', `${chat.path}/turns`, { input: [approval] });
  expect([refused.status, refused.body.error.code]).toEqual([422, 'call_not_pending']);
  expect(await updates()).toBe(1);
});

test('a session whose workflow was terminated is rebuilt by its next command', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two')] });
  const first = chat.turn('first');
  await first.done;
  await client.workflow.getHandle(sessionWorkflowId(chat.sessionId)).terminate('an operator');
  const second = chat.turn('second');
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'two' } });
  expect((await second.type('turn.created')).previous_turn_id).toBe(await first.turnId());
});

test('a terminated turn ends well-formed, and its session continues', async () => {
  const model = held(
    (call) => call.text('Unfinished'),
    () => undefined,
  );
  const chat = await server.chat({
    scripts: [use({ name: 'look', args: { n: 1 }, id: 'l1' }), model.script],
    spec: onTestServer,
  });
  const reader = chat.turn('go');
  await reader.says('Unfinished');
  const turnId = await reader.turnId();
  await client.workflow.getHandle(turnWorkflowId(turnId)).terminate('an operator');
  expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'abandoned' });
  const whole = folded(await reader.done);
  expect(whole.at(-2)).toMatchObject({ type: 'model.message', content: '', finish_reason: 'cancelled' });
  const replay = await server.api.subscribe(chat.sessionId, turnId).done;
  expect(folded(replay)).toEqual(whole);
  // The session learns of the end as the parent, without a signal.
  await expect.poll(async () => (await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(200);
  expect(await chat.turn('and now?').end()).toMatchObject({ status: 'done' });
  await sleep(0);
  model.release();
});
