import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from 'vitest';
import { toUuid } from '../../src/api/agents-v2/session-ids.ts';
import { ActionReader } from '../support/action-reader.ts';
import { ApiClient, type EventReader } from '../support/api-client.ts';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { eventually } from '../support/eventually.ts';
import { RunAgent } from '../support/runs.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';
import { WebhookReceiver } from '../support/webhook-receiver.ts';

/** Who gets the link of a sign-in, and which browser can use it. */

let notes: ProtectedMcpServer;
/** Its provider names the account. */
let named: ProtectedMcpServer;
let server: TestServer;
let root: ApiClient;
let ann: ApiClient;
let approver: ApiClient;
beforeAll(async () => {
  notes = await ProtectedMcpServer.start();
  named = await ProtectedMcpServer.start();
  // Fixed before its first connection: the pool keeps the response of a server that rejected one for a while.
  named.scope = 'openid notes';
  server = await startTestServer({
    env: {
      EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann,apr:approver=key-of-apr',
      EVERTURN_ALLOW_PRIVATE_URLS: 'true',
    },
    servers: { notes: { url: notes.mcp.url, drafts: ['user'] }, named: { url: named.mcp.url } },
  });
  const clientOf = (key: string) => new ApiClient(server.server.url, key);
  [root, ann, approver] = [clientOf('key-of-root'), clientOf('key-of-ann'), clientOf('key-of-apr')];
});
afterAll(async () => {
  await server.stop();
  await Promise.all([notes.stop(), named.stop()]);
});
afterEach(async () => {
  notes.user.consents = true;
  const { data } = await ann.get<{ data: { id: string }[] }>('/v1/agents/mcp/connections');
  for (const { id } of data) await ann.send('DELETE', `/v1/agents/mcp/connections/${id}`);
});

let agents = 0;

interface Conversation {
  agent: string;
  id: string;
  path: string;
  turn: EventReader;
}

/** A turn of ann that needs a sign-in, and waits for it or ends on it. */
async function begin(pause: 'wait' | 'end', name = 'notes', scripts = [say('Milk.')]): Promise<Conversation> {
  agents += 1;
  const agent = `links-${agents}`;
  server.model.script(agent, ...scripts);
  await root.putAgent(agent, {
    model: { name: agent },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name, require_approval_for_tools: ['@all'] }],
    ...(pause === 'wait' && { config: { pause } }),
  });
  const id = await ann.createSession(agent);
  return { agent, id, path: `/v1/agents/sessions/${id}`, turn: ann.turn(id, 'list') };
}

/** The links that a turn has given so far, when it has given `count` of them and waits. */
async function links({ turn }: Conversation, count: number): Promise<string[]> {
  const given = () =>
    turn.frames.flatMap((frame) => (frame.type === 'mcp.auth_required' ? [frame.mcp_servers[0]?.auth_url ?? ''] : []));
  await turn.next(({ type }) => type === 'turn.paused' && given().length >= count);
  return given();
}

const linksIn = (body: unknown) =>
  [...JSON.stringify(body).matchAll(/"auth_url":"([^"]*)"/g)].map(([, link = '']) => link);

const isCallback = ({ pathname }: URL) => pathname.endsWith('/callback');

test.each([
  ['named by the provider', 'named', 'ann@idp'],
  ['the issuer and the time, if the provider names none', 'notes', null],
] as const)('connections and mcp.initialize say whose account is used: %s', async (_, name, account) => {
  const conversation = await begin('wait', name);
  const [url = ''] = await links(conversation, 1);
  const page = await new TestBrowser().open(url);
  expect(page.text.includes('Your account there is ann@idp.')).toBe(account !== null);
  await conversation.turn.end();
  const [connection] = (await ann.get('/v1/agents/mcp/connections')).data;
  expect(connection).toMatchObject({ account, issuer: { named, notes }[name].issuer, created_at: expect.any(String) });
  const { id, issuer, created_at } = connection;
  const initialized = (frames: EventReader['frames']) =>
    frames.flatMap((frame) => (frame.type === 'mcp.initialize' ? frame.mcp_servers : [])).at(-1);
  expect(initialized(conversation.turn.frames)).toMatchObject({ connection: { id, account, issuer, created_at } });
  const others = await root.subscribe(conversation.id, await conversation.turn.turnId()).done;
  expect(initialized(others)).toMatchObject({ name });
  expect(initialized(others)).not.toHaveProperty('connection');
});

test('no path of the Sessions API gives the link to an admin or an approver, and each gives it to the owner', async () => {
  const conversation = await begin('end');
  await conversation.turn.end();
  const turnId = await conversation.turn.turnId();
  const { id, path } = conversation;
  const read = async (api: ApiClient) => {
    const session = api.followSession(id);
    await session.type('turn.done');
    session.close();
    return {
      turn: await api.get(`${path}/turns/${turnId}`),
      turns: await api.get(`${path}/turns`),
      'events of the turn': await api.list(`${path}/turns/${turnId}/events`),
      'events of the session': await api.list(`${path}/events`),
      subscribe: await api.subscribe(id, turnId).done,
      stream: await api.followTurn(id, turnId).done,
      session: session.frames,
    };
  };
  for (const body of Object.values(await read(ann))) {
    expect(linksIn(body)).toContainEqual(expect.stringContaining('/v1/agents/mcp/authorize?state='));
  }
  for (const api of [root, approver]) {
    for (const [name, body] of Object.entries(await read(api))) {
      expect([name, new Set(linksIn(body))]).toEqual([name, new Set([''])]);
    }
  }
});

test('an approver whose answer starts a turn gets no link in its stream', async () => {
  const { id, turn } = await begin('end', 'notes', [use({ name: 'list', id: 'c1' }), say('Milk.')]);
  await turn.end();
  const [url = ''] = linksIn(turn.frames);
  expect((await new TestBrowser().open(url)).text).toContain('You are signed in');
  await ann.turn(id, []).type('tool.approval_required');
  const { data } = await ann.get<{ data: { id: string }[] }>('/v1/agents/mcp/connections');
  for (const connection of data) await ann.send('DELETE', `/v1/agents/mcp/connections/${connection.id}`);
  const allow = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'c1', approval: { status: 'allow' } };
  const answered = approver.turn(id, [allow]);
  await answered.end();
  expect(new Set(linksIn(answered.frames))).toEqual(new Set(['']));
  const own = await ann.subscribe(id, await answered.turnId()).done;
  expect(linksIn(own)).toContainEqual(expect.stringContaining('authorize?state='));
});

test('a shared session of the Agents API has the link for none of its readers', async () => {
  const { id, turn } = await begin('end');
  await turn.end();
  const [url = ''] = linksIn(turn.frames);
  const state = new URL(url).searchParams.get('state') ?? '';
  const path = `/api/v2/sessions/${toUuid(id)}`;
  expect((await ann.send('POST', `${path}/share`)).status).toBe(200);
  for (const reader of [new ApiClient(server.server.url), root, approver]) {
    for (const part of ['', '/status', '/changes', '/events']) {
      const text = JSON.stringify(await reader.get(path + part));
      expect([part, text.includes(state)]).toEqual([part, false]);
    }
    expect(JSON.stringify(await reader.get(`${path}/events`))).toContain('"message_event"');
  }
});

test('webhooks and inboxes of others have no link', async () => {
  const receiver = await WebhookReceiver.start();
  onTestFinished(() => receiver.stop());
  const events = ['turn.done', 'action.created'];
  const { body } = await root.send('POST', '/v1/webhooks', {
    url: receiver.url,
    events,
    agent_name: `links-${agents + 1}`,
  });
  onTestFinished(async () => void (await root.send('DELETE', `/v1/webhooks/${body.data.id}`)));
  const { turn, agent } = await begin('end');
  await turn.end();
  await eventually(() => expect(receiver.requests).toHaveLength(2));
  const bodies = receiver.requests.map((request) => JSON.parse(request.body));
  const created = bodies.find(({ type }) => type === 'action.created');
  expect(created.data.action).toMatchObject({ kind: 'sign_in', tool: { server: 'notes' } });
  expect(created.data.action).not.toHaveProperty('auth_url');
  expect(new Set(linksIn(bodies))).toEqual(new Set(['']));
  expect(linksIn(await ann.list(`/v1/agents/actions?agent_name=${agent}`))).toHaveLength(1);
  for (const api of [root, approver]) expect(linksIn(await api.list('/v1/agents/actions'))).toEqual([]);
});

test('a run has the link for its owner alone', async () => {
  const agent = new RunAgent({ api: ann, model: server.model }, [say('Milk.')], {
    toolkits: [{ type: 'mcp', server: 'notes', required: false }],
  });
  const { id, required_action: action } = await agent.run('list');
  expect(linksIn(action)).toEqual([expect.stringContaining('authorize?state=')]);
  // A stream ends with the pause.
  const stream = async (key: string) => {
    const headers = { authorization: `Bearer ${key}` };
    return (await fetch(`${server.server.url}/v1/runs/${id}/stream`, { headers })).text();
  };
  const read = async (api: ApiClient, key: string) => [
    JSON.stringify(await api.get(`/v1/runs/${id}`)),
    JSON.stringify(await api.list('/v1/runs')),
    await stream(key),
  ];
  // Lists follow within a moment.
  await eventually(async () => expect(linksIn(await ann.list('/v1/runs'))).toEqual(linksIn(action)));
  for (const text of await read(ann, 'key-of-ann')) expect(text).toContain('"auth_url":"http');
  for (const text of await read(root, 'key-of-root')) {
    expect(text).toContain('"sign_ins":[{"server":"notes"');
    expect(text).not.toContain('auth_url');
  }
  expect(new Set(linksIn(await root.list(`/v1/runs/${id}/events`)))).toEqual(new Set(['']));
  await root.send('POST', `/v1/runs/${id}/cancel`, {});
});

test('a preview binds nothing; the browser that continues first may try again', async () => {
  const conversation = await begin('wait');
  const [url = ''] = await links(conversation, 1);
  expect((await new TestBrowser().visit(url)).status).toBe(200);
  const browser = new TestBrowser();
  await browser.open(url, isCallback);
  expect((await browser.open(url)).text).toContain('You are signed in to notes');
  expect(await conversation.turn.end()).toMatchObject({ output: { content: 'Milk.' } });
});

test.each(['continue', 'decline'] as const)(
  'a second browser that presses %s ends the link, and the turn that waits gives a new one',
  async (decision) => {
    const conversation = await begin('wait');
    const changes = await ActionReader.open(server.server.url, 'key-of-ann');
    const [url = ''] = await links(conversation, 1);
    const first = new TestBrowser();
    const callback = await first.open(url, isCallback);
    const second = new TestBrowser();
    const page = await second.open(url, isCallback, decision);
    expect([page.status, page.text]).toEqual([404, expect.stringContaining('was used in another browser')]);
    expect(page.text).toContain('the conversation has a new link');
    const [, next = ''] = await links(conversation, 2);
    expect(next).not.toBe(url);
    // The first browser may be the one of a stranger.
    const late = await first.visit(callback.url.href);
    expect([late.status, late.text]).toEqual([404, expect.stringContaining('has ended')]);
    expect((await ann.get('/v1/agents/mcp/connections')).data).toEqual([]);
    await eventually(async () => {
      const pending = await ann.list(`/v1/agents/actions?agent_name=${conversation.agent}`);
      expect(linksIn(pending)).toEqual([next]);
    });
    expect((await second.open(next)).text).toContain('You are signed in to notes');
    expect(await conversation.turn.end()).toMatchObject({ output: { content: 'Milk.' } });
    const events = () =>
      changes.received.flatMap(({ event }) => (event.action.session_id === conversation.id ? [event] : []));
    // The last one is about the new link.
    await eventually(() => expect(events().at(-1)?.type).toBe('action.decided'));
    const ended = events().flatMap((event) => (event.type === 'action.expired' ? [event.action] : []));
    expect(ended).toMatchObject([{ status: 'superseded', decisions: [] }]);
    const resumed = conversation.turn.frames.flatMap((frame) => (frame.type === 'turn.resumed' ? [frame.by] : []));
    expect(resumed).toEqual([undefined, expect.objectContaining({ subject_slug: 'ann' })]);
  },
);

test('a link that was used too often is replaced', async () => {
  const conversation = await begin('wait');
  const [url = ''] = await links(conversation, 1);
  const browser = new TestBrowser();
  for (let i = 0; i < 10; i++) await browser.open(url, isCallback);
  expect((await browser.open(url)).text).toContain('was used too often');
  const [, next = ''] = await links(conversation, 2);
  expect((await browser.open(next)).text).toContain('You are signed in');
  await conversation.turn.end();
});

test('five links are replaced in ten minutes; the next one ends no link', async () => {
  const conversation = await begin('wait');
  const press = async (url = '') => {
    await new TestBrowser().open(url, isCallback);
    return (await new TestBrowser().open(url)).text;
  };
  for (let count = 1; count <= 5; count++) {
    expect(await press((await links(conversation, count)).at(-1))).toContain('has a new link');
  }
  const last = (await links(conversation, 6)).at(-1);
  expect(await press(last)).toContain('open it again in 10 minutes');
  expect(await links(conversation, 6)).toHaveLength(6);
  await ann.send('POST', `${conversation.path}/cancel`, {});
  await conversation.turn.end();
});

test('a second browser ends the link of a turn that has ended, and the next turn gives another one', async () => {
  const conversation = await begin('end');
  await conversation.turn.end();
  const [url = ''] = linksIn(conversation.turn.frames);
  await new TestBrowser().open(url, isCallback);
  expect((await new TestBrowser().open(url)).text).toContain('continue the conversation without a message');
  const next = ann.turn(conversation.id, []);
  await next.end();
  expect(linksIn(next.frames)[0]).not.toBe(url);
  expect((await new TestBrowser().open(linksIn(next.frames)[0] ?? '')).text).toContain('You are signed in');
});

test('a declined link is dead', async () => {
  const conversation = await begin('wait');
  const [url = ''] = await links(conversation, 1);
  const browser = new TestBrowser();
  await browser.open(url, undefined, 'decline');
  const page = await browser.visit(url);
  expect([page.status, page.text]).toEqual([404, expect.stringContaining('has ended')]);
  await conversation.turn.end();
});
