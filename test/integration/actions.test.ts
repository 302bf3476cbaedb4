import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { ActionResource } from '../../src/api/sessions/wire/actions.ts';
import { Catalog } from '../../src/features/catalog.ts';
import { loadConfig } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { ActionReader } from '../support/action-reader.ts';
import { ApiClient } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let clients: Record<'admin' | 'approver' | 'ann' | 'bob', ApiClient>;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,boss:approver=key-of-boss,ann=key-of-ann,bob:user=key-of-bob' },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
  connect();
});
afterAll(() => server.stop());

/** A restart gives the server another port. */
function connect(): void {
  const as = (key: string) => new ApiClient(server.server.url, key);
  clients = { admin: as('key-of-root'), approver: as('key-of-boss'), ann: as('key-of-ann'), bob: as('key-of-bob') };
}

const answer = (status: string, id = 'w1', rest: { reason?: string; arguments?: object } = {}) => ({
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: id,
  approval: { status, ...rest },
});

/** A session of ann whose first turn waits for approvals of calls with these ids; returns its id and the turn's. */
async function paused(agent: string, ids: string[]): Promise<{ id: string; turnId: string }> {
  await clients.admin.putAgent(agent, { model: { name: agent }, ...onTestServer });
  server.model.script(agent, use(...ids.map((id) => ({ name: 'write', args: { text: id }, id }))));
  const id = await clients.ann.createSession(agent);
  const reader = clients.ann.turn(id, 'write');
  await reader.done;
  return { id, turnId: await reader.turnId() };
}

/** The calls and states of the actions of an agent that the caller is shown. */
async function inbox(client: ApiClient, agent: string, status = 'pending'): Promise<(string | null)[][]> {
  const actions = await client.list<ActionResource>(`/v1/agents/actions?status=${status}&agent_name=${agent}`);
  return actions.map((action) => [action.tool_call_id, action.status]);
}

test('a session with a pending call is found among others, and no longer once it was decided', async () => {
  const { id } = await paused('pending', ['w1']);
  const other = await clients.ann.createSession('pending');
  const { database, encryptionKeys } = loadConfig({ ...process.env, DATABASE_URL: server.database.url });
  const catalog = await Catalog.open(database, pino({ level: 'silent' }), new Cipher(encryptionKeys));
  onTestFinished(() => catalog.close());
  const { actions } = catalog;
  await eventually(async () => expect(await actions.isAnyPending([other, id])).toBe(true));
  expect(await actions.isAnyPending([other])).toBe(false);
  await clients.ann.turn(id, [answer('allow')]).done;
  await eventually(async () => expect(await actions.isAnyPending([other, id])).toBe(false));
});

test('the inbox shows the pending calls to those who may decide them, and moves them once they are decided', async () => {
  const { id, turnId } = await paused('inbox', ['w1', 'w2', 'w3']);
  const [action] = await eventually(async () => {
    const found = await clients.approver.list<ActionResource>('/v1/agents/actions?agent_name=inbox&order=asc');
    expect(found).toHaveLength(3);
    return found;
  });
  expect(action).toEqual({
    id: expect.stringMatching(/^act_/),
    session_id: id,
    turn_id: turnId,
    agent_name: 'inbox',
    thread_id: 'main',
    tool_call_id: 'w1',
    kind: 'approval',
    tool: { server: 'test', name: 'write' },
    arguments: { text: 'w1' },
    requested_at: expect.any(String),
    decisions: [],
    status: 'pending',
  });
  expect(await inbox(clients.ann, 'inbox')).toHaveLength(3);
  // A stranger may not read the session, and an admin may read it but not decide.
  expect(await inbox(clients.bob, 'inbox')).toEqual([]);
  expect(await inbox(clients.admin, 'inbox')).toEqual([]);
  const [reason, edited] = ['not today', { text: 'better' }];
  const long = { text: 'x'.repeat(1_500) };
  await clients.approver.turn(id, [
    answer('allow', 'w1', { arguments: edited }),
    answer('deny', 'w2', { reason }),
    answer('allow', 'w3', { arguments: long }),
  ]).done;
  await eventually(async () => expect(await inbox(clients.ann, 'inbox')).toEqual([]));
  const decided = await clients.ann.list<ActionResource>(
    '/v1/agents/actions?status=decided&agent_name=inbox&order=asc',
  );
  const by = { subject_id: 'boss', subject_type: 'user', subject_slug: 'boss' };
  expect(decided.map(({ status, decisions }) => [status, decisions])).toEqual([
    ['decided', [{ by, decision: 'allow', at: expect.any(String), arguments: edited }]],
    ['decided', [{ by, decision: 'deny', at: expect.any(String), reason }]],
    ['decided', [{ by, decision: 'allow', at: expect.any(String), arguments: null }]],
  ]);
  expect(await inbox(clients.bob, 'inbox', 'decided')).toEqual([]);
});

test('an action that is answered before its turn is in the index is decided exactly once', async () => {
  const reader = await ActionReader.open(server.server.url, 'key-of-ann');
  const { id } = await paused('hasty', ['w1']);
  // The archive follows a second after the end of a turn.
  await clients.ann.turn(id, [answer('allow')]).done;
  const events = await reader.next(2);
  expect(events.map(({ event }) => [event.type, event.action.status, event.action.decisions.length])).toEqual([
    ['action.created', 'pending', 0],
    ['action.decided', 'decided', 1],
  ]);
  await eventually(async () => expect(await inbox(clients.ann, 'hasty', 'decided')).toEqual([['w1', 'decided']]));
  expect(reader.received).toHaveLength(2);
});

test('an action that a fork leaves behind is superseded, until a fork of the waiting turn answers it', async () => {
  await clients.admin.putAgent('forked', { model: { name: 'forked' }, ...onTestServer });
  server.model.script('forked', say('Hi.'), use({ name: 'write', id: 'w1' }), say('Elsewhere.'), say('Back.'));
  const id = await clients.ann.createSession('forked');
  const first = clients.ann.turn(id, 'hi');
  await first.done;
  const waiting = clients.ann.turn(id, 'write');
  await waiting.done;
  await eventually(async () => expect(await inbox(clients.ann, 'forked')).toEqual([['w1', 'pending']]));
  await clients.ann.turn(id, 'elsewhere', { previous_turn_id: await first.turnId() }).done;
  await eventually(async () => expect(await inbox(clients.ann, 'forked', 'decided')).toEqual([['w1', 'superseded']]));
  await clients.ann.turn(id, [answer('allow')], { previous_turn_id: await waiting.turnId() }).done;
  await eventually(async () => expect(await inbox(clients.ann, 'forked', 'decided')).toEqual([['w1', 'decided']]));
});

test('the actions of a closed session are superseded, and those of a deleted one are removed', async () => {
  const closed = await paused('closed', ['w1']);
  const deleted = await paused('deleted', ['w1']);
  await eventually(async () => expect(await inbox(clients.ann, 'closed')).toHaveLength(1));
  await eventually(async () => expect(await inbox(clients.ann, 'deleted')).toHaveLength(1));
  const reader = await ActionReader.open(server.server.url, 'key-of-ann');
  await clients.ann.send('POST', `/v1/agents/sessions/${closed.id}/cancel`, { close: true });
  expect(await inbox(clients.ann, 'closed', 'decided')).toEqual([['w1', 'superseded']]);
  await clients.ann.send('DELETE', `/v1/agents/sessions/${deleted.id}`);
  const events = await reader.next(2);
  expect(events.map(({ event: { type, action } }) => [type, action.session_id, action.arguments])).toEqual([
    ['action.expired', closed.id, { text: 'w1' }],
    ['action.expired', deleted.id, null],
  ]);
  await eventually(async () => expect(await inbox(clients.ann, 'deleted', 'decided')).toEqual([]));
});

test('the list is paged in both orders, and its tokens belong to one list of one caller', async () => {
  const ids = ['a', 'b', 'c', 'd', 'e'];
  await paused('paged', ids);
  await paused('paged', ['f']);
  await eventually(async () => expect(await inbox(clients.ann, 'paged')).toHaveLength(6));
  const path = '/v1/agents/actions?agent_name=paged';
  const callsOf = async (query: string) => {
    const found = await clients.approver.list<ActionResource>(path + query, 2);
    return found.map(({ tool_call_id: id }) => id).join('');
  };
  expect(await callsOf('&order=asc')).toBe('abcdef');
  expect(await callsOf('')).toBe('fedcba');
  const { pagination } = await clients.approver.get(`${path}&limit=2`);
  const token = `&page_token=${pagination.next_page_token}`;
  for (const [client, query] of [
    [clients.ann, ''],
    [clients.approver, '&order=asc'],
    [clients.approver, '&status=decided'],
  ] as const) {
    expect((await client.send('GET', path + query + token)).body.error.code).toBe('invalid_page_token');
  }
});

test('the stream continues after any event, for each caller with its own actions', async () => {
  const { url } = server.server;
  const all = await ActionReader.open(url, 'key-of-boss');
  const strange = await ActionReader.open(url, 'key-of-bob');
  const first = await paused('streamed', ['w1', 'w2']);
  await eventually(async () => expect(await inbox(clients.ann, 'streamed')).toHaveLength(2));
  await paused('streamed', ['w3']);
  await eventually(async () => expect(await inbox(clients.ann, 'streamed')).toHaveLength(3));
  await clients.ann.turn(first.id, [answer('allow'), answer('deny', 'w2')]).done;
  const events = [...(await all.next(5))];
  for (const cursor of [all.cursor, ...events.map(({ id }) => id)]) {
    const rest = events.filter(({ id }) => id > cursor);
    const cut = await ActionReader.open(url, 'key-of-boss', cursor);
    expect((await cut.next(rest.length)).slice(0, rest.length)).toEqual(rest);
    cut.close();
  }
  expect(strange.received).toEqual([]);
  await expect(ActionReader.open(url, 'key-of-boss', 10 ** 9)).rejects.toThrow(/400.*invalid_cursor/);
});

test('the calls of a turn that waits are in the inbox, and are decided, while it runs', async () => {
  const { admin, ann, approver } = clients;
  const reader = await ActionReader.open(server.server.url, 'key-of-ann');
  await admin.putAgent('waiting', { model: { name: 'waiting' }, ...onTestServer, config: { pause: 'wait' } });
  const calls = [
    { name: 'write', args: { text: 'a' }, id: 'w1' },
    { name: 'write', args: { text: 'b' }, id: 'w2' },
    { name: 'ask_user_question', args: { question: 'Why?' }, id: 'q1' },
  ];
  server.model.script('waiting', use(...calls), use({ name: 'write', args: { text: 'c' }, id: 'w3' }));
  const id = await ann.createSession('waiting');
  const turn = ann.turn(id, 'go');
  await reader.next(3);
  expect((await inbox(ann, 'waiting')).flat()).toEqual(expect.arrayContaining(['w1', 'w2', 'q1']));
  // A response is for those who may send messages.
  expect((await inbox(approver, 'waiting')).flat()).not.toContain('q1');
  const answerAll = (client: ApiClient, ...input: object[]) =>
    client.send('POST', `/v1/agents/sessions/${id}/actions`, { input });
  expect((await answerAll(approver, answer('allow'))).status).toBe(200);
  await reader.next(4);
  const response = { type: 'user.tool_response', thread_id: 'main', tool_call_id: 'q1', content: 'because' };
  expect((await answerAll(ann, answer('deny', 'w2', { reason: 'no' }), response)).status).toBe(200);
  // The turn resumes, waits again, and is cancelled.
  await reader.next(7);
  await ann.send('POST', `/v1/agents/sessions/${id}/cancel`, {});
  await turn.done;
  const events = await reader.next(8);
  const [boss, owner] = ['boss', 'ann'].map((name) => ({ subject_id: name, subject_type: 'user', subject_slug: name }));
  const at = expect.any(String);
  expect(
    events.map(({ event: { type, action } }) => [type, action.tool_call_id, action.status, action.decisions]),
  ).toEqual([
    ['action.created', 'w1', 'pending', []],
    ['action.created', 'w2', 'pending', []],
    ['action.created', 'q1', 'pending', []],
    ['action.decided', 'w1', 'decided', [{ by: boss, decision: 'allow', at }]],
    ['action.decided', 'w2', 'decided', [{ by: owner, decision: 'deny', at, reason: 'no' }]],
    ['action.decided', 'q1', 'decided', [{ by: owner, decision: 'respond', at }]],
    ['action.created', 'w3', 'pending', []],
    ['action.expired', 'w3', 'superseded', []],
  ]);
});

describe('single answers to the calls of a turn that has ended', () => {
  type Answer = ReturnType<typeof answer>;
  const give = async (
    client: ApiClient,
    id: string,
    ...input: Answer[]
  ): Promise<[status: number, result: unknown]> => {
    const { status, body } = await client.send('POST', `/v1/agents/sessions/${id}/actions`, { input });
    return [status, status === 200 ? body.data : body.error.code];
  };
  const subject = (slug: string) => ({ subject_slug: slug });

  test('are kept, also over a restart, until the last one starts the turn with all of them', async () => {
    const { id } = await paused('single', ['w1', 'w2', 'w3']);
    expect(await give(clients.approver, id, answer('allow', 'w1'))).toEqual([
      200,
      { accepted: ['w1'], waiting: ['w2', 'w3'] },
    ]);
    await eventually(async () => expect(await inbox(clients.ann, 'single', 'decided')).toEqual([['w1', 'decided']]));
    await server.restart();
    connect();
    const long = 'because '.repeat(1_000).trim();
    for (let i = 0; i < 2; i++) {
      expect(await give(clients.ann, id, answer('deny', 'w2', { reason: long }))).toEqual([
        200,
        { accepted: ['w2'], waiting: ['w3'], ...(i > 0 && { repeated: ['w2'] }) },
      ]);
    }
    expect(await give(clients.ann, id, answer('deny', 'w1'))).toEqual([409, 'already_decided']);
    expect(await give(clients.ann, id, answer('allow', 'w2'))).toEqual([409, 'already_decided']);
    expect(await give(clients.ann, id, answer('allow', 'w3'), answer('allow', 'x'))).toEqual([422, 'call_not_pending']);
    expect(await give(clients.admin, id, answer('allow', 'w3'))).toEqual([403, 'not_an_approver']);
    expect((await give(clients.bob, id, answer('allow', 'w3')))[0]).toBe(404);
    server.model.script('single', say('Two were written.'));
    const [, last] = await give(clients.approver, id, answer('allow', 'w3'));
    expect(last).toEqual({ accepted: ['w3'], waiting: [], turn_id: expect.stringMatching(/^turn_/) });
    const turnId = (last as { turn_id: string }).turn_id;
    const reader = clients.ann.subscribe(id, turnId);
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Two were written.' } });
    expect(await reader.type('turn.created')).toMatchObject({
      created_by: subject('boss'),
      input: [
        { tool_call_id: 'w1', by: subject('boss') },
        { tool_call_id: 'w2', by: subject('ann'), approval: { status: 'deny', reason: long } },
        { tool_call_id: 'w3', by: subject('boss') },
      ],
    });
    const outcomes = reader.frames.flatMap((frame) => (frame.type === 'tool.response' ? [frame.outcome] : []));
    expect(outcomes.toSorted()).toEqual(['denied', 'succeeded', 'succeeded']);
    // A client that has not got the response sends the last answer again.
    expect(await give(clients.approver, id, answer('allow', 'w3'))).toEqual([
      200,
      { ...(last as object), repeated: ['w3'] },
    ]);
    expect(await give(clients.ann, id, answer('allow', 'w3'))).toEqual([409, 'nothing_pending']);
    await eventually(async () => {
      const decided = await clients.ann.list<ActionResource>('/v1/agents/actions?status=decided&agent_name=single');
      const whoDecided = decided.map(({ tool_call_id: call, decisions }) => [
        call,
        decisions.map(({ by }) => by?.subject_slug),
      ]);
      expect(Object.fromEntries(whoDecided)).toEqual({ w1: ['boss'], w2: ['ann'], w3: ['boss'] });
    });
  });

  test('start one turn if two are the last at the same time', async () => {
    const { id } = await paused('together', ['w1', 'w2']);
    server.model.script('together', say('Written.'));
    const results = await Promise.all([
      give(clients.ann, id, answer('allow', 'w1')),
      give(clients.approver, id, answer('allow', 'w2')),
      give(clients.approver, id, answer('allow', 'w2')),
    ]);
    expect(results.map(([status]) => status)).toEqual([200, 200, 200]);
    await eventually(async () => {
      const turns = await clients.ann.list<{ state: { status: string } }>(`/v1/agents/sessions/${id}/turns`, 25);
      expect(turns.map(({ state }) => state.status)).toEqual(['done', 'done']);
    });
  });

  test('end with another turn: one that answers all calls, or one that goes elsewhere', async () => {
    const { id } = await paused('replaced', ['w1', 'w2']);
    await give(clients.approver, id, answer('allow', 'w1'));
    await eventually(async () => expect(await inbox(clients.ann, 'replaced', 'decided')).toEqual([['w1', 'decided']]));
    server.model.script('replaced', use({ name: 'write', id: 'w3' }, { name: 'write', id: 'w4' }));
    await clients.ann.turn(id, [answer('deny', 'w1'), answer('deny', 'w2')]).done;
    await eventually(async () => {
      const decided = await clients.ann.list<ActionResource>('/v1/agents/actions?status=decided&agent_name=replaced');
      const first = decided.find(({ tool_call_id: call }) => call === 'w1');
      expect(first?.decisions.map(({ by, decision }) => [by?.subject_slug, decision])).toEqual([
        ['boss', 'allow'],
        ['ann', 'deny'],
      ]);
    });
    expect(await give(clients.ann, id, answer('allow', 'w4'))).toEqual([200, { accepted: ['w4'], waiting: ['w3'] }]);
    server.model.script('replaced', say('Elsewhere.'));
    await clients.ann.turn(id, 'elsewhere', { previous_turn_id: 'none' }).done;
    expect(await give(clients.ann, id, answer('allow', 'w3'))).toEqual([409, 'nothing_pending']);
    await eventually(async () => {
      const states = (await inbox(clients.ann, 'replaced', 'decided')).map(([, status]) => status);
      expect(states.filter((status) => status === 'superseded')).toHaveLength(2);
    });
  });
});
