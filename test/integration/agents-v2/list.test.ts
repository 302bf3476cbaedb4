import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { EngineError } from '../../../src/engine/errors.ts';
import { TurnLogReader } from '../../../src/engine/turn-log-reader.ts';
import { SessionQueue } from '../../../src/features/agent-sessions/session-queue.ts';
import type { SessionSummary } from '../../../src/api/agents-v2/wire/list.ts';
import { toUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { eventually } from '../../support/eventually.ts';
import { delegate as delegating } from '../../support/delegating-chats.ts';
import { held, say, use, type Script } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** The list of sessions. */

interface Page {
  items: SessionSummary[];
  total: number;
  page: number;
}

const STATUSES = [
  'queued',
  'pending',
  'running',
  'paused',
  'idle',
  'awaiting_tool_results',
  'completed',
  'failed',
  'timed_out',
  'interrupted',
];

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
let admin: ApiClient;
const connect = () => {
  [ann, bob, admin] = ['ann', 'bob', 'eve'].map((name) => new ApiClient(server.api.url, `key-of-${name}`)) as [
    ApiClient,
    ApiClient,
    ApiClient,
  ];
};
beforeAll(async () => {
  const keys = ['ann', 'bob'].map((name) => `${name}=key-of-${name}`);
  server = await startTestServer({
    env: {
      EVERTURN_API_KEYS: [...keys, 'eve:admin=key-of-eve'].join(),
      EVERTURN_AGENT_SESSIONS: '30',
      EVERTURN_ENCRYPTION_KEYS: `k1:${Buffer.alloc(32, 7).toString('base64')}`,
    },
  });
  connect();
});
afterAll(() => server.stop());

const list = (query: string, api = ann): Promise<Page> => api.get(`/api/v2/sessions?${query}`);
const idsOf = ({ items }: Page) => items.map(({ id }) => id);

async function open(
  api: ApiClient,
  model: string,
  { scripts = [], ...more }: { scripts?: Script[]; [field: string]: unknown } = {},
) {
  server.model.script(model, ...scripts);
  return AgentSession.create(api, { agent: agentNamed(model), messages: `Hi ${model}`, ...more });
}

const lookup = { name: 'lookup', description: 'looks it up', input_schema: { type: 'object' } };

test('every session is listed under the state that it has, and no other', async () => {
  const never = held(
    () => undefined,
    (call) => call.finish(),
  );
  const seen: [string, AgentSession][] = [];
  const add = async (status: string, session: AgentSession) => {
    await session.until(status);
    seen.push([status, session]);
  };
  await add('completed', await open(ann, 'completed', { scripts: [say('one')] }));
  await add('failed', await open(ann, 'failed', { scripts: [(call) => call.fail(400, 'no')] }));
  const late = await open(ann, 'late', { scripts: [say('late')], idle_timeout_s: 1 });
  const restarted = await open(ann, 'restarted', {
    scripts: [say('one'), never.script, never.script],
    idle_timeout_s: 600,
  });
  const interrupted = await open(ann, 'interrupted', { scripts: [never.script, never.script] });
  await interrupted.until('running');
  await ann.send('DELETE', interrupted.path);
  await add('interrupted', interrupted);
  await add('idle', await open(ann, 'idle', { scripts: [say('one')], idle_timeout_s: 600 }));
  const gone = await open(ann, 'gone', { scripts: [say('one')], idle_timeout_s: 600 });
  await gone.until('idle');
  await ann.send('DELETE', gone.path);
  await add('interrupted', gone);
  await restarted.until('idle');
  await restarted.say('more');
  await add('running', restarted);
  const tools = agentNamed('tools', { tools: [lookup] });
  server.model.script('tools', use({ name: 'lookup', id: 'call_1' }));
  await add('awaiting_tool_results', await AgentSession.create(ann, { agent: tools, messages: 'Look' }));
  const paused = await open(ann, 'paused', { scripts: [never.script, never.script] });
  await paused.until('running');
  await paused.post('pause');
  await add('running', await open(ann, 'running', { scripts: [never.script, never.script] }));
  await add('completed', late);
  server.model.script('boss', delegating('quick', 'stuck'));
  server.model.script('quick', say('done'));
  server.model.script('stuck', never.script, never.script);
  const boss = agentNamed('boss', { subagents: [agentNamed('quick'), agentNamed('stuck')] });
  const parent = await AgentSession.create(ann, { agent: boss, messages: 'Work' });
  await add('running', parent);
  const children = await eventually(async () => {
    const { items } = await list(`parent_session_id=${parent.id}&sort=created_at`);
    expect(items.map(({ status }) => status).toSorted()).toEqual(['completed', 'running']);
    return items;
  });
  expect(new Set((await parent.status()).subagent_session_ids)).toEqual(new Set(children.map(({ id }) => id)));
  await add('idle', await AgentSession.create(ann, { agent: agentNamed('silent') }));

  // With and without what the processes have in memory.
  for (const when of ['archived', 'restarted']) {
    const statuses = new Map<string, string>();
    const items = await eventually(async () => {
      const { items, total } = await list('size=100');
      expect(total).toBe(items.length);
      for (const { id } of items) statuses.set(id, (await new AgentSession(ann, id).status()).status);
      expect(
        items.map(({ id, status }) => [id, status]),
        when,
      ).toEqual([...statuses]);
      return items;
    });
    for (const status of STATUSES) {
      const expected = [...statuses].flatMap(([id, its]) => (its === status ? [id] : []));
      const page = await list(`status=${status}&size=100`);
      expect([when, status, idsOf(page), page.total]).toEqual([when, status, expected, expected.length]);
    }
    const two = await list(`status=${encodeURIComponent('["completed","interrupted"]')}&size=100`);
    expect(idsOf(two)).toEqual(idsOf(await list('status=completed&status=interrupted&size=100')));
    expect(two.total).toBe([...statuses.values()].filter((one) => one === 'completed' || one === 'interrupted').length);
    for (const { id, finished_at: at, started_at: started } of items) {
      const session = await new AgentSession(ann, id).get();
      expect([id, at, started]).toEqual([id, session.finished_at, session.started_at]);
    }
    const finished = items.flatMap(({ finished_at: at }) => at ?? []).toSorted();
    const [, after = '', before = ''] = finished;
    const within = items.filter(({ finished_at: at }) => at !== null && at >= after && at <= before);
    const bounds = `finished_after=${after}&finished_before=${before}`;
    expect(idsOf(await list(`${bounds}&size=100`))).toEqual(within.map(({ id }) => id));
    if (when === 'archived') {
      await server.restart();
      connect();
    }
  }
  for (const { id } of (await list('size=100')).items) await ann.send('DELETE', `/api/v2/sessions/${id}`);
  never.release();
});

test('a page has its part of the list, in the order that was asked for', async () => {
  const [group] = ['pages'];
  const sessions = [];
  for (let i = 0; i < 5; i++) sessions.push(await open(ann, 'page', { group_id: group, messages: `number ${i}` }));
  const ids = sessions.map(({ id }) => id);
  const inGroup = (query: string) => list(`group_id=${group}&${query}`);
  expect(idsOf(await inGroup('sort=created_at'))).toEqual(ids);
  expect(idsOf(await inGroup(''))).toEqual(ids.toReversed());
  const page = await inGroup('sort=created_at&size=2&page=2');
  expect(page).toMatchObject({ total: 5, page: 2 });
  expect(idsOf(page)).toEqual(ids.slice(2, 4));
  expect(await inGroup('size=2&page=4')).toEqual({ items: [], total: 5, page: 4 });
  const { items } = await inGroup('sort=created_at');
  expect(items.map(({ first_message: first }) => first?.message)).toEqual(sessions.map((_, i) => `number ${i}`));
  const [from = '', to = ''] = [items[1]?.created_at, items[3]?.created_at];
  const between = await inGroup(`sort=created_at&created_after=${from}&created_before=${to}`);
  expect(idsOf(between)).toEqual(ids.slice(1, 4));
  for (const [query, loc] of [
    ['created_after=yesterday', 'created_after'],
    ['size=101', 'size'],
    ['page=0', 'page'],
    ['status=done', 'status'],
    ['sort=status', 'sort'],
    ['owner=all', 'owner'],
    ['parent_session_id=x', 'parent_session_id'],
  ]) {
    const { status, body } = await ann.send('GET', `/api/v2/sessions?${query}`);
    expect([query, status, JSON.stringify(body.detail)]).toEqual([query, 422, expect.stringContaining(loc ?? '')]);
  }
});

test('a session is found by its agent, its parent, its messages and its answer', async () => {
  const spec = { model: { name: 'registered' }, instructions: 'Help.' };
  await admin.putAgent('order-desk', spec);
  server.model.script('registered', say('Of the Ärger, NUMBER 4711.'));
  const named = await AgentSession.create(ann, { agent: 'order-desk', messages: 'Which ORDERS are late?' });
  const child = await open(ann, 'child', { parent_session_id: named.id });
  await named.until('completed');
  expect(idsOf(await list('agent=order-desk&agent=other'))).toEqual([named.id]);
  expect(idsOf(await list('agent=child'))).toEqual([]);
  await eventually(async () => expect(idsOf(await list('search=4711'))).toEqual([named.id]));
  expect((await list('agent=order-desk')).items).toMatchObject([{ agent: 'order-desk', agent_revision: 1 }]);
  expect(idsOf(await list(`parent_session_id=${named.id}`))).toEqual([child.id]);
  for (const search of ['orders ARE', 'number 4711', 'äRGER']) {
    expect([search, ...idsOf(await list(`search=${encodeURIComponent(search)}`))]).toEqual([search, named.id]);
  }
  expect(await list('search=nowhere-to-be-found')).toEqual({ items: [], total: 0, page: 1 });
  expect(idsOf(await list('search=orders&status=failed'))).toEqual([]);
});

test('a caller sees its own sessions, and those of others if it may read them', async () => {
  const own = await open(bob, 'own', { group_id: 'whose' });
  await bob.createSession('order-desk');
  const ofBob = await list('owner=organization&size=100', bob);
  expect(idsOf(ofBob)).toContain(own.id);
  for (const owner of ['me', 'me-in-organization', 'organization', 'me-or-organization']) {
    const all = owner.endsWith('organization') && owner !== 'me-in-organization';
    const query = `group_id=whose&owner=${owner}`;
    expect([owner, ...idsOf(await list(query, bob))]).toEqual([owner, own.id]);
    expect([owner, ...idsOf(await list(query, ann))]).toEqual([owner]);
    expect([owner, ...idsOf(await list(query, admin))]).toEqual([owner, ...(all ? [own.id] : [])]);
  }
});

test('a session of the Sessions API is in the list, and waits after its answer', async () => {
  const chat = await new ApiClient(server.api.url, 'key-of-ann').createSession('order-desk');
  const id = toUuid(chat);
  const listed = async () => (await list('size=100')).items.find((item) => item.id === id);
  expect(await listed()).toMatchObject({ status: 'idle', first_message: null, agent: 'order-desk', started_at: null });
  server.model.script('registered', say('Hello from there.'));
  await ann.turn(chat, [{ type: 'user.message', content: 'Hi from elsewhere' }]).done;
  await eventually(async () => {
    expect(await listed()).toMatchObject({ status: 'idle', first_message: { message: 'Hi from elsewhere' } });
    expect(idsOf(await list('search=FROM+THERE'))).toEqual([id]);
  });
  expect(idsOf(await list('status=idle&size=100'))).toContain(id);
});

test('a list, its filters and its search read no log', async () => {
  const session = await open(ann, 'unread', { scripts: [say('Without a log.')], idle_timeout_s: 600 });
  await session.until('idle');
  await eventually(async () => expect(idsOf(await list('search=Without+a+log'))).toEqual([session.id]));
  const damaged = () => {
    throw new SyntaxError('the record is damaged');
  };
  for (const method of ['read', 'readStored', 'readBackwards', 'currentRun', 'start'] as const) {
    vi.spyOn(TurnLogReader.prototype, method).mockImplementation(damaged);
  }
  onTestFinished(() => void vi.restoreAllMocks());
  expect(idsOf(await list('search=Without+a+log'))).toEqual([session.id]);
  expect((await list('size=1')).items).toMatchObject([
    { id: session.id, status: 'idle', first_message: { message: 'Hi unread' } },
  ]);
  expect(idsOf(await list('status=idle&size=1'))).toEqual([session.id]);
});

test('a session that could not be started is gone, unless the key of its request completes it', async () => {
  const quota = () => ann.get<{ active: number }>('/api/v2/sessions/quota');
  const { active } = await quota();
  vi.spyOn(SessionQueue.prototype, 'start').mockRejectedValue(new EngineError('unavailable', 'Temporal is away'));
  onTestFinished(() => void vi.restoreAllMocks());
  server.model.script('unstarted', say('Once.'));
  const send = (headers: Record<string, string>) =>
    ann.send('POST', '/api/v2/sessions', { agent: agentNamed('unstarted'), messages: 'Hi unstarted' }, headers);
  expect((await send({})).status).toBe(503);
  const search = 'search=unstarted';
  expect(await list(search)).toMatchObject({ items: [], total: 0 });
  // Sessions of the tests before may have ended meanwhile.
  expect((await quota()).active).toBeLessThanOrEqual(active);

  const key = { 'idempotency-key': 'unstarted' };
  expect((await send(key)).status).toBe(503);
  vi.restoreAllMocks();
  const { status, body } = await send(key);
  expect(status).toBe(201);
  await new AgentSession(ann, body.id).until('completed');
  expect(idsOf(await list(search))).toEqual([body.id]);
  expect(server.model.requestsTo('unstarted')).toHaveLength(1);
});
