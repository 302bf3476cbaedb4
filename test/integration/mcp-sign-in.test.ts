import { inputRequired } from '@modelcontextprotocol/server';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { ActionReader } from '../support/action-reader.ts';
import { ApiClient, folded, type EventReader } from '../support/api-client.ts';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';
import { find, readTemporal } from '../support/raw-stores.ts';
import { createLogger } from '../../src/telemetry/logger.ts';

let notes: ProtectedMcpServer;
let server: TestServer;
let root: ApiClient;
const logged: string[] = [];
beforeAll(async () => {
  notes = await ProtectedMcpServer.start();
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann,bob=key-of-bob' },
    servers: { notes: { url: notes.mcp.url } },
    mcp: { tools: [{ name: 'book', handler: (_, { inputResponses }) => (inputResponses ? 'booked' : askWhereTo()) }] },
    log: createLogger({ logLevel: 'trace' }, { write: (line: string) => void logged.push(line) }),
  });
  root = new ApiClient(server.server.url, 'key-of-root');
});
afterAll(async () => {
  await server.stop();
  await notes.stop();
});
beforeEach(() => {
  notes.user = { name: 'ann@idp', consents: true };
  notes.rejectsCalls = false;
});
afterEach(async () => {
  for (const subject of ['ann', 'bob'] as const) {
    const api = clientOf(subject);
    const { data } = await api.get<{ data: { id: string }[] }>('/v1/agents/mcp/connections');
    for (const { id } of data) await api.send('DELETE', `/v1/agents/mcp/connections/${id}`);
  }
  notes.mcp.calls.length = 0;
});

function askWhereTo(): ReturnType<typeof inputRequired> {
  const requestedSchema = { type: 'object' as const, properties: { place: { type: 'string' as const } } };
  return inputRequired({ inputRequests: { place: inputRequired.elicit({ message: 'Where to?', requestedSchema }) } });
}

function clientOf(subject: 'ann' | 'bob'): ApiClient {
  return new ApiClient(server.server.url, `key-of-${subject}`);
}

interface Chat {
  turn: (input: unknown) => EventReader;
  script: (...replies: Parameters<TestServer['model']['script']>[1][]) => void;
  /** The instructions of the last request to the model. */
  instructions: () => string;
  events: () => Promise<{ event: object }[]>;
  resume: (turnId: string, after: number | undefined) => EventReader;
}

const onNotes = {
  mcp_servers: [{ type: 'truefoundry-mcp-registry' as const, name: 'notes', require_approval_for_tools: [] }],
};

let agents = 0;

/** A conversation of a subject with its own agent. */
async function chat(subject: 'ann' | 'bob', server_: object = onNotes.mcp_servers[0]!): Promise<Chat> {
  agents += 1;
  const agent = `notes-${agents}`;
  await root.putAgent(agent, { model: { name: agent }, mcp_servers: [server_] });
  const api = clientOf(subject);
  const id = await api.createSession(agent);
  return {
    turn: (input) => api.turn(id, input),
    script: (...replies) => server.model.script(agent, ...replies),
    instructions: () => JSON.stringify(server.model.requestsTo(agent).at(-1)?.messages[0]),
    resume: (turnId, after) => api.subscribe(id, turnId, after),
    events: () => api.list(`/v1/agents/sessions/${id}/events`),
  };
}

/** Runs a turn that ends with the request for a sign-in, and returns its URL. */
async function authUrl({ turn }: Chat, input: unknown = 'list'): Promise<string> {
  const end = await turn(input).end();
  expect(end).toMatchObject({ status: 'done', output: null, required_actions: [{ type: 'mcp.auth_required' }] });
  const [action] = end.status === 'done' ? end.required_actions : [];
  if (action?.type !== 'mcp.auth_required') throw new Error('no sign-in is required');
  return action.mcp_servers[0]?.auth_url ?? '';
}

/** Signs the subject in, in a conversation of its own. */
async function signIn(subject: 'ann' | 'bob'): Promise<void> {
  const page = await new TestBrowser().open(await authUrl(await chat(subject)));
  expect(page.text).toContain('You are signed in');
}

/** The address to which the authorization server sends the user of a browser back. */
async function callbackOf(url: string, browser = new TestBrowser()): Promise<URL> {
  const { url: callback } = await browser.open(url, ({ pathname }) => pathname.endsWith('/callback'));
  return callback;
}

test('the inbox of the owner has the sign-in on which a turn has ended', async () => {
  const changes = await ActionReader.open(server.server.url, 'key-of-ann');
  const ann = await chat('ann');
  const url = await authUrl(ann);
  const [created] = await changes.next(1);
  expect(created?.event).toMatchObject({ type: 'action.created', action: { kind: 'sign_in', auth_url: url } });
  for (const other of [root, clientOf('bob')]) expect(await other.list('/v1/agents/actions')).toEqual([]);
  await new TestBrowser().open(url);
  expect((await changes.next(2))[1]?.event).toMatchObject({
    type: 'action.decided',
    action: {
      id: created?.event.action.id,
      status: 'decided',
      decisions: [{ by: { subject_id: 'ann' }, decision: 'allow' }],
    },
  });
});

test('a turn ends with a link; after the sign-in, a turn without input continues', async () => {
  const ann = await chat('ann');
  const url = await authUrl(ann);
  expect(url).toContain(`${server.server.url}/v1/agents/mcp/authorize?state=`);
  const page = await new TestBrowser().open(url);
  expect(page).toMatchObject({ status: 200, text: expect.stringContaining('You are signed in to notes') });
  ann.script(use({ name: 'list' }), say('Milk.'));
  const reader = ann.turn([]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Milk.' } });
  expect((await reader.type('mcp.initialize')).mcp_servers).toMatchObject([{ name: 'notes' }]);
  expect(notes.mcp.calls.map(({ tool }) => tool)).toEqual(['list']);
});

test('tokens and codes are not in histories, logs, events and URLs', async () => {
  const ann = await chat('ann');
  const browser = new TestBrowser();
  const callback = await callbackOf(await authUrl(ann), browser);
  await browser.visit(callback.href);
  ann.script(use({ name: 'list' }), say('Milk.'));
  await ann.turn([]).end();
  const secrets = [notes.token, callback.searchParams.get('code') ?? ''];
  expect(secrets.every((secret) => secret.length > 20)).toBe(true);
  const temporal = { address: inject('temporalAddress'), namespace: inject('temporalNamespace') };
  const stores = await readTemporal(temporal);
  for (const secret of secrets) {
    expect(find(secret, stores)).toEqual([]);
    expect(logged.join('\n')).not.toContain(secret);
    expect(JSON.stringify(await ann.events())).not.toContain(secret);
  }
});

test('a subject signs in once for all its conversations, and for no other subject', async () => {
  await signIn('ann');
  const ann = await chat('ann');
  ann.script(say('Hello.'));
  expect(await ann.turn('hello').end()).toMatchObject({ status: 'done', output: { content: 'Hello.' } });
  const bob = await chat('bob');
  notes.user.name = 'bob@idp';
  await new TestBrowser().open(await authUrl(bob));
  bob.script(use({ name: 'list' }), say('Nothing.'));
  await bob.turn([]).end();
  const accounts = await Promise.all(
    [...new Set(notes.used)].slice(-2).map(async (token) => (await notes.provider.AccessToken.find(token))?.accountId),
  );
  expect(accounts).toEqual(['ann@idp', 'bob@idp']);
});

describe('a user who does not sign in', () => {
  test('sends a message instead: the agent answers without the server', async () => {
    const ann = await chat('ann');
    await authUrl(ann);
    for (const text of ['never mind', 'something else']) {
      ann.script(say('Without notes.'));
      expect(await ann.turn(text).end()).toMatchObject({ output: { content: 'Without notes.' } });
      expect(ann.instructions()).toContain('the user has not signed in');
    }
    await authUrl(ann, []);
  });

  test('and declines: the next turn continues without the server, a later one asks again', async () => {
    const ann = await chat('ann');
    notes.user.consents = false;
    const url = await authUrl(ann);
    const page = await new TestBrowser().open(url);
    expect(page.text).toContain('You have declined to sign in to notes');
    ann.script(say('As you wish.'));
    expect(await ann.turn([]).end()).toMatchObject({ output: { content: 'As you wish.' } });
    expect(ann.instructions()).toContain('the user has declined to sign in');
    expect((await new TestBrowser().open(url)).text).toContain('has ended');
    await authUrl(ann, []);
  });
});

describe('the callback', () => {
  test('twice gives the same page, and exchanges the code once', async () => {
    const browser = new TestBrowser();
    const callback = await callbackOf(await authUrl(await chat('ann')), browser);
    const before = notes.tokenRequests.length;
    for (let i = 0; i < 2; i++) {
      const page = await browser.visit(callback.href);
      expect(page).toMatchObject({ status: 200, text: expect.stringContaining('You are signed in to notes') });
    }
    expect(notes.tokenRequests.slice(before)).toEqual(['authorization_code']);
  });

  test('that is late finds no sign-in, and a new link is given', async () => {
    const ann = await chat('ann');
    const callback = await callbackOf(await authUrl(ann));
    await server.database.rows
      .updateTable('mcp_sign_ins')
      .set({ expires_at: new Date().toISOString() })
      .where('status', '=', 'requested')
      .execute();
    const response = await fetch(callback, { headers: { accept: 'text/html' } });
    expect(response.status).toBe(404);
    expect(await response.text()).toMatch(/has expired: continue the conversation without a message/);
    const url = await authUrl(ann, []);
    expect((await new TestBrowser().open(url)).text).toContain('You are signed in');
  });

  test.each([
    ['a wrong state', { state: 'x'.repeat(43) }, 404, 'sign_in_not_found'],
    ['a wrong issuer', { iss: 'https://evil.example' }, 422, 'sign_in_failed'],
    ['no issuer', { iss: undefined }, 422, 'sign_in_failed'],
    ['a wrong code', { code: 'not-the-code' }, 422, 'sign_in_failed'],
    ['neither a code nor an error', { code: undefined }, 422, 'sign_in_failed'],
  ])('with %s gives no access', async (_, changes, status, code) => {
    const ann = await chat('ann');
    const browser = new TestBrowser();
    const callback = await callbackOf(await authUrl(ann), browser);
    for (const [name, value] of Object.entries(changes)) {
      if (value === undefined) callback.searchParams.delete(name);
      else callback.searchParams.set(name, value);
    }
    expect((await browser.visit(callback.href)).status).toBe(status);
    const answer = await clientOf('ann').send('GET', callback.pathname + callback.search);
    expect([answer.status, answer.body.error.code]).toEqual([status, code]);
    const { data } = await clientOf('ann').get('/v1/agents/mcp/connections');
    expect(data).toEqual([]);
  });

  test('and the link are rejected with the key of another subject', async () => {
    const url = new URL(await authUrl(await chat('ann')));
    const browser = new TestBrowser();
    const callback = await callbackOf(url.href, browser);
    for (const { pathname, search } of [url, callback]) {
      const answer = await clientOf('bob').send('GET', pathname + search);
      expect([answer.status, answer.body.error.code]).toEqual([404, 'sign_in_not_found']);
    }
    expect((await browser.visit(callback.href)).status).toBe(200);
  });

  test('comes back after the link was opened twice: the second visit counts', async () => {
    const url = await authUrl(await chat('ann'));
    const browser = new TestBrowser();
    const first = await callbackOf(url, browser);
    const second = await callbackOf(url, browser);
    const page = await browser.visit(first.href);
    expect(page).toMatchObject({ status: 422, text: expect.stringContaining('asked again in the meantime') });
    expect((await browser.visit(second.href)).status).toBe(200);
  });

  test('is rejected in a browser that has not confirmed the sign-in', async () => {
    const url = await authUrl(await chat('ann'));
    const attacker = new TestBrowser();
    const callback = await callbackOf(url, attacker);
    const victim = new TestBrowser();
    await victim.visit(url);
    for (const browser of [new TestBrowser(), victim]) {
      const page = await browser.visit(callback.href);
      expect(page).toMatchObject({ status: 422, text: expect.stringContaining('asked from another browser') });
    }
    expect((await clientOf('ann').get('/v1/agents/mcp/connections')).data).toEqual([]);
    expect((await attacker.visit(callback.href)).status).toBe(200);
  });
});

describe('the page before a sign-in', () => {
  test('says what it is for, and cannot be framed', async () => {
    const url = await authUrl(await chat('ann'));
    const response = await fetch(url);
    const text = await response.text();
    for (const part of [
      `The agent notes-${agents}, in a conversation of ann,`,
      notes.mcp.url,
      notes.issuer,
      '(notes, offline_access)',
    ]) {
      expect(text).toContain(part);
    }
    expect(response.headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    expect(response.headers.get('set-cookie')).toMatch(/^everturn-sign-in=[\w-]{43}; .*HttpOnly; SameSite=Lax$/);
  });

  test('is submitted from the browser that has opened it', async () => {
    const url = await authUrl(await chat('ann'));
    const other = await authUrl(await chat('ann'));
    const browser = new TestBrowser();
    const [, token = ''] = /name="token" value="(\w+)"/.exec((await browser.visit(other)).text) ?? [];
    const form = new URLSearchParams({ token, decision: 'continue' });
    // Neither the form of another sign-in, nor one without the cookie, nor one without a token.
    for (const [who, what] of [
      [browser, form],
      [new TestBrowser(), form],
      [browser, new URLSearchParams({ decision: 'continue' })],
    ] as const) {
      expect([400, 422]).toContain((await who.visit(url, undefined, what)).status);
    }
  });

  test('lets the user decline there', async () => {
    const ann = await chat('ann');
    const page = await new TestBrowser().open(await authUrl(ann), undefined, 'decline');
    expect(page.text).toContain('You have declined to sign in to notes');
    ann.script(say('As you wish.'));
    expect(await ann.turn([]).end()).toMatchObject({ output: { content: 'As you wish.' } });
  });

  test('leads to a limited number of visits to the authorization server', async () => {
    const url = await authUrl(await chat('ann'));
    const browser = new TestBrowser();
    for (let i = 0; i < 10; i++) await callbackOf(url, browser);
    expect((await browser.open(url)).status).toBe(404);
  });
});

test('access that was revoked at the authorization server is asked for again', async () => {
  await signIn('ann');
  const ann = await chat('ann');
  ann.script(use({ name: 'list' }), say('Milk.'));
  await ann.turn('list').end();
  await notes.revoke();
  ann.script(use({ name: 'list' }));
  const url = await authUrl(ann);
  expect((await clientOf('ann').get('/v1/agents/mcp/connections')).data).toEqual([]);
  await new TestBrowser().open(url);
  ann.script(say('Still milk.'));
  expect(await ann.turn([]).end()).toMatchObject({ output: { content: 'Still milk.' } });
});

describe('calls that the server rejects for their token', () => {
  /** Two calls that end their turn. */
  async function rejectedCalls(): Promise<{ ann: Chat; url: string }> {
    await signIn('ann');
    const ann = await chat('ann');
    notes.rejectsCalls = true;
    const refreshes = (): number => notes.tokenRequests.filter((type) => type === 'refresh_token').length;
    const before = refreshes();
    ann.script(use({ name: 'add', id: 'a1' }, { name: 'list', id: 'l1' }));
    const reader = ann.turn('add and list');
    const end = await reader.end();
    expect(end).toMatchObject({ status: 'done', output: null });
    const actions = end.status === 'done' ? end.required_actions : [];
    const calls = actions.flatMap(({ tool_calls }) => tool_calls.map(({ id }) => id));
    expect(calls.toSorted()).toEqual(['a1', 'l1']);
    expect(reader.frames.map(({ type }) => type)).not.toContain('tool.response');
    expect(notes.mcp.calls).toEqual([]);
    // The rejected token was refreshed once for both calls, and the refreshed one was dropped.
    expect(refreshes() - before).toBe(1);
    expect((await clientOf('ann').get('/v1/agents/mcp/connections')).data).toEqual([]);
    notes.rejectsCalls = false;
    const [action] = actions;
    return { ann, url: action?.type === 'mcp.auth_required' ? (action.mcp_servers[0]?.auth_url ?? '') : '' };
  }

  test('run once after the next sign-in', async () => {
    const { ann, url } = await rejectedCalls();
    await new TestBrowser().open(url);
    ann.script(say('Done.'));
    const reader = ann.turn([]);
    expect(await reader.end()).toMatchObject({ output: { content: 'Done.' } });
    const responses = reader.frames.filter(({ type }) => type === 'tool.response');
    expect(responses).toMatchObject([{ outcome: 'succeeded' }, { outcome: 'succeeded' }]);
    expect(notes.mcp.calls.map(({ tool }) => tool).toSorted()).toEqual(['add', 'list']);
  });

  test('fail if the user sends a message instead', async () => {
    const { ann } = await rejectedCalls();
    ann.script(say('Not added.'));
    const reader = ann.turn('forget it');
    const response = await reader.type('tool.response');
    expect(response.outcome).toBe('failed');
    expect(response.content).toContain(
      'not executed: MCP server "notes" requires the user to sign in: the user has not signed in',
    );
    expect(await reader.end()).toMatchObject({ output: { content: 'Not added.' } });
    expect(notes.mcp.calls).toEqual([]);
  });
});

describe('beside a question of another server, a call that is rejected for its token', () => {
  const answer = {
    type: 'user.tool_response',
    thread_id: 'main',
    tool_call_id: 'b1',
    content: JSON.stringify({ action: 'accept', content: { place: 'Rome' } }),
  };

  /** A turn with both calls, while the server rejects. */
  async function begin(): Promise<{ api: ApiClient; id: string; reader: EventReader }> {
    await signIn('ann');
    notes.rejectsCalls = true;
    agents += 1;
    const name = `both-${agents}`;
    const servers = [...onNotes.mcp_servers, ...onTestServer.mcp_servers];
    await root.putAgent(name, { model: { name }, mcp_servers: servers });
    server.model.script(name, use({ name: 'notes__list', id: 'l1' }, { name: 'test__book', id: 'b1' }), say('Done.'));
    const api = clientOf('ann');
    const id = await api.createSession(name);
    return { api, id, reader: api.turn(id, 'list and book') };
  }

  /** The calls that the turn waits for, by the types of the actions. */
  async function waiting(reader: EventReader): Promise<[type: string, calls: string[]][]> {
    const end = await reader.end();
    const actions = end.status === 'done' ? end.required_actions : [];
    notes.rejectsCalls = false;
    for (const action of actions) {
      if (action.type === 'mcp.auth_required') await new TestBrowser().open(action.mcp_servers[0]?.auth_url ?? '');
    }
    return actions.map(({ type, tool_calls: calls }) => [type, calls.map(({ id }) => id)]);
  }

  async function continued(reader: EventReader): Promise<Record<string, string>> {
    expect(await reader.end()).toMatchObject({ output: { content: 'Done.' } });
    const responses = reader.frames.filter((frame) => frame.type === 'tool.response');
    return Object.fromEntries(responses.map(({ tool_call_id: id, content }) => [id, content]));
  }

  test('runs in the turn that has the answer', async () => {
    const { api, id, reader } = await begin();
    expect(await waiting(reader)).toEqual([
      ['mcp.auth_required', ['l1']],
      ['tool.response_required', ['b1']],
    ]);
    expect(await continued(api.turn(id, [answer]))).toEqual({ l1: 'milk', b1: 'booked' });
  });
});

test('a user lists and ends connections, also at the authorization server', async () => {
  await signIn('ann');
  const ann = await chat('ann');
  ann.script(say('Hello.'));
  await ann.turn('hello').end();
  const { token } = notes;
  const { data } = await clientOf('ann').get('/v1/agents/mcp/connections');
  expect(data).toEqual([
    {
      id: expect.stringMatching(/^con_/),
      mcp_server: { id: 'notes', name: 'notes', url: notes.mcp.url },
      account: null,
      issuer: notes.issuer,
      scopes: expect.arrayContaining(['notes']),
      created_at: expect.any(String),
    },
  ]);
  const path = `/v1/agents/mcp/connections/${data[0].id}`;
  expect((await clientOf('bob').send('DELETE', path)).status).toBe(404);
  expect((await clientOf('ann').send('DELETE', path)).status).toBe(204);
  expect((await clientOf('ann').send('DELETE', path)).status).toBe(404);
  expect(await notes.provider.AccessToken.find(token)).toBeUndefined();
  await authUrl(ann, 'list');
});

test('an inline server at a private address, or with such an authorization server, asks for no sign-in', async () => {
  const bob = await chat('bob', { type: 'inline', name: 'mine', url: notes.mcp.url });
  bob.script(say('No.'));
  expect(await bob.turn('hello').end()).toMatchObject({ output: { content: 'No.' } });
  expect(bob.instructions()).toContain('EVERTURN_ALLOW_PRIVATE_URLS');
});

test('a sub-agent waits for the sign-in, and answers its parent in the turn after it', async () => {
  await root.putAgent('librarian', { model: { name: 'librarian' }, ...onNotes });
  await root.putAgent('director', { model: { name: 'director' }, agents: ['librarian'] });
  const api = clientOf('ann');
  const id = await api.createSession('director');
  const task = { name: 'look', input: 'Which notes are there?', agent: 'librarian' };
  server.model.script('director', use({ name: 'create_sub_agent', id: 'sub', args: task }));
  const end = await api.turn(id, 'look').end();
  expect(end).toMatchObject({ status: 'done', output: null, required_actions: [{ type: 'mcp.auth_required' }] });
  const [action] = end.status === 'done' ? end.required_actions : [];
  if (action?.type !== 'mcp.auth_required') throw new Error('no sign-in is required');
  const [{ auth_url: url, thread_ids: threads } = { auth_url: '', thread_ids: [] }] = action.servers;
  expect(threads).toEqual([expect.stringMatching(/^thr_/)]);
  await new TestBrowser().open(url);
  server.model.script('librarian', use({ name: 'list' }), say('Milk.'));
  server.model.script('director', say('There is milk.'));
  const reader = api.turn(id, []);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'There is milk.' } });
  expect(await reader.type('thread.done')).toMatchObject({ thread_id: threads[0], status: 'done' });
});

test('a reader that resumes at any event gets what one that stayed has, and the lists', async () => {
  const ann = await chat('ann');
  ann.script(use({ name: 'list' }), say('Milk.'));
  const frames = await ann.turn('list').done;
  const [created] = frames;
  if (created?.type !== 'turn.created') throw new Error('the first event is another one');
  for (let cut = 0; cut <= frames.length; cut++) {
    const seen = frames.slice(0, cut);
    const rest = await ann.resume(created.turn_id, seen.at(-1)?.sequence_number).done;
    expect(folded(seen, rest)).toEqual(folded(frames));
  }
  const listed = (await ann.events()).map(({ event }) => event).toReversed();
  expect(folded(frames)).toEqual(listed);
});
