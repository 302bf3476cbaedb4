import { fc } from '../support/fast-check.ts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { anySessionResource } from '../../src/api/sessions/wire/resources.ts';
import { ApiClient } from '../support/api-client.ts';
import { SEED } from '../support/seed.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let ann: ApiClient;
let bob: ApiClient;
let admin: ApiClient;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'ann=key-of-ann,bob=key-of-bob,root:admin=key-of-root' },
  });
  const as = (key: string) => new ApiClient(server.api.url, key);
  [ann, bob, admin] = [as('key-of-ann'), as('key-of-bob'), as('key-of-root')];
});
afterAll(() => server.stop());

const SESSIONS = '/v1/agents/sessions';
const DRAFTS = '/v1/agents/draft-sessions';
const OWNED = '/v1/x/agents/owned-sessions';
const SEARCH = '/v1/x/agents/search-sessions';

interface Listing {
  data: Item[];
  pagination: { next_page_token: string | null };
}

interface Item {
  id: string;
  type: string;
  created_at: string;
  agent_name: string | null;
}

/** Sessions that appear to have been created at these times, of which several may be equal. */
async function insert(
  owner: string,
  {
    agent = 'a',
    type = 'session' as const,
    times,
  }: { agent?: string; type?: 'session' | 'session/draft'; times: number[] },
): Promise<string[]> {
  const { rows } = server.database;
  await rows
    .insertInto('specs')
    .values({ hash: 'h', spec: '{"model":{"name":"m"}}' })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  const values = times.map((time) => {
    const at = new Date(time).toISOString();
    return {
      id: newId('ses'),
      type,
      agent_name: agent,
      agent_version: type === 'session' ? 1 : null,
      spec_hash: 'h',
      subject_id: owner,
      subject_type: 'user',
      subject_slug: owner,
      created_at: at,
      updated_at: at,
      active_at: at,
    };
  });
  if (values.length > 0) await rows.insertInto('sessions').values(values).execute();
  return values.map(({ id }) => id);
}

const clear = () => server.database.rows.deleteFrom('sessions').execute();

const ids = async (client: ApiClient, url: string, limit = 100) =>
  (await client.list<Item>(url, limit)).map(({ id }) => id);

const at = (minute: number) => Date.UTC(2026, 10, 1, 12, minute);

test('each list has the sessions of its purpose, and only those that its caller may see', async () => {
  await clear();
  const [session = ''] = await insert('ann', { times: [at(1)] });
  const [draft = ''] = await insert('ann', { type: 'session/draft', agent: 'idea', times: [at(2)] });
  const [other = ''] = await insert('bob', { times: [at(3)] });
  const [deleted = ''] = await insert('ann', { times: [at(4)] });
  expect((await ann.send('DELETE', `${SESSIONS}/${deleted}`)).status).toBe(204);
  for (const [url, anns, bobs, admins] of [
    [SESSIONS, [session], [other], [other, session]],
    [DRAFTS, [draft], [], []],
    [OWNED, [draft, session], [other], []],
    [SEARCH, [draft, session], [other], [other, draft, session]],
  ] as const) {
    expect(await ids(ann, url), url).toEqual(anns);
    expect(await ids(bob, url), url).toEqual(bobs);
    expect(await ids(admin, url), url).toEqual(admins);
  }
  const { data }: Listing = await ann.get(OWNED);
  for (const item of data) expect(anySessionResource.parse(item)).toEqual(item);
  expect(data[0]).toMatchObject({ type: 'session/draft', agent_name: 'idea', agent_spec: { model: { name: 'm' } } });
});

test('filters work alone and combined', async () => {
  await clear();
  const [one = '', two = ''] = await insert('ann', { agent: 'a', times: [at(1), at(2)] });
  const [three = ''] = await insert('ann', { agent: 'b', times: [at(3)] });
  const [four = ''] = await insert('ann', { agent: 'b', type: 'session/draft', times: [at(4)] });
  const [five = ''] = await insert('bob', { agent: 'b', times: [at(5)] });
  const time = (minute: number) => new Date(at(minute)).toISOString();
  for (const [query, found] of [
    ['', [five, four, three, two, one]],
    ['order=asc', [one, two, three, four, five]],
    ['agent_name=b', [five, four, three]],
    ['agent_name=nobody', []],
    ['session_type=session', [five, three, two, one]],
    ['session_type=session/draft&agent_name=b', [four]],
    [`session_id=${two}`, [two]],
    [`session_id=${two}&agent_name=b`, []],
    ['created_by_subject_id=bob', [five]],
    ['created_by_subject_slug=ann&agent_name=b', [four, three]],
    ['created_by_subject_type=user', [five, four, three, two, one]],
    ['created_by_subject_type=robot', []],
    [`start_timestamp=${time(2)}&end_timestamp=${time(4)}`, [four, three, two]],
    [`start_timestamp=${time(4)}&end_timestamp=${time(2)}`, []],
    ['start_timestamp=2026-11-01T14:04%2B02:00', [five, four]],
    ['end_timestamp=2026-11-01T12:01:00.000999', [one]],
    ['start_timestamp=2026-11-01&end_timestamp=2026-11-01&order=asc', [one, two, three, four, five]],
    ['end_timestamp=2026-10-31', []],
    ['agent_name=&session_type=&start_timestamp=', [five, four, three, two, one]],
  ] as const) {
    expect(await ids(admin, `${SEARCH}?${query}`), query).toEqual(found);
  }
  // A caller who may read only its own sessions finds no others with a filter.
  expect(await ids(ann, `${SEARCH}?created_by_subject_id=bob`)).toEqual([]);
  expect(await ids(ann, `${SEARCH}?session_id=${five}`)).toEqual([]);
  expect(await ids(bob, `${SEARCH}?created_by_subject_slug=ann`)).toEqual([]);
  for (const [query, param] of [
    ['order=up', 'order'],
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['start_timestamp=yesterday', 'start_timestamp'],
    ['end_timestamp=2026-13-01', 'end_timestamp'],
    ['end_timestamp=2026-02-30T10:00:00Z', 'end_timestamp'],
    ['start_timestamp=2026-11-01T25:00', 'start_timestamp'],
    ['end_timestamp=9999-12-31T23:59:59-01:00', 'end_timestamp'],
    ['session_type=both', 'session_type'],
  ]) {
    const answer = await ann.send('GET', `${SEARCH}?${query}`);
    expect([answer.status, answer.body.error.param], query).toEqual([400, param]);
  }
});

test('an agent that never existed has no list, and a deleted one still has its sessions', async () => {
  await clear();
  const answer = await ann.send('GET', `${SESSIONS}?agent_name=never`);
  expect([answer.status, answer.body.error.code]).toEqual([404, 'agent_not_found']);
  await admin.putAgent('was', { model: { name: 'm' } });
  expect(await ids(ann, `${SESSIONS}?agent_name=was`)).toEqual([]);
  const id = await ann.createSession('was');
  await admin.send('DELETE', '/v1/agents/was');
  expect(await ids(ann, `${SESSIONS}?agent_name=was`)).toEqual([id]);
});

test('a page token is valid for the list that returned it, whatever the page size', async () => {
  await clear();
  await insert('ann', { times: [at(1), at(2), at(3)] });
  await insert('bob', { times: [at(1), at(2), at(3)] });
  await insert('ann', { type: 'session/draft', times: [at(1), at(2), at(3)] });
  await admin.putAgent('a', { model: { name: 'm' } });
  const { pagination }: Listing = await ann.get(`${SESSIONS}?limit=1&agent_name=a`);
  const token = pagination.next_page_token;
  expect(pagination).toEqual({ limit: 1, next_page_token: expect.any(String), previous_page_token: null });
  expect((await ann.get(`${SESSIONS}?limit=9&agent_name=a&page_token=${token}`)).data.length).toBe(2);
  for (const [client, url] of [
    [ann, SESSIONS],
    [ann, `${SESSIONS}?agent_name=a&order=asc`],
    [ann, `${SESSIONS}?agent_name=a&end_timestamp=2027-01-01`],
    [ann, `${DRAFTS}?agent_name=a`],
    [ann, `${OWNED}?agent_name=a`],
    [bob, `${SESSIONS}?agent_name=a`],
    [admin, `${SESSIONS}?agent_name=a`],
    [ann, '/v1/agents'],
  ] as const) {
    const answer = await client.send('GET', `${url}${url.includes('?') ? '&' : '?'}page_token=${token}`);
    expect([answer.status, answer.body.error.code], url).toEqual([400, 'invalid_page_token']);
  }
});

test('sessions that remain are listed once, in order, despite creations and deletions between two pages', async () => {
  const time = fc.integer({ min: 0, max: 9 });
  const change = fc.record({ created: fc.array(time, { maxLength: 3 }), deleted: fc.nat({ max: 30 }) });
  const start = fc.array(fc.record({ time, isDraft: fc.boolean() }), { minLength: 1, maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(
      start,
      fc.array(change),
      fc.integer({ min: 1, max: 4 }),
      fc.boolean(),
      async (sessions, changes, limit, isAsc) => {
        await clear();
        const types = [false, true].map((isDraft) =>
          sessions.filter((one) => one.isDraft === isDraft).map((one) => at(one.time)),
        );
        const staying = new Set([
          ...(await insert('ann', { times: types[0] ?? [] })),
          ...(await insert('ann', { type: 'session/draft', times: types[1] ?? [] })),
        ]);
        const seen: Item[] = [];
        let token: string | null = '';
        for (let page = 0; token !== null; page += 1) {
          const url: string = `${OWNED}?limit=${limit}&order=${isAsc ? 'asc' : 'desc'}&page_token=${token}`;
          const { data, pagination }: Listing = await ann.get(url);
          seen.push(...data);
          token = pagination.next_page_token;
          const { created, deleted } = changes[page] ?? { created: [], deleted: 30 };
          await insert('ann', { times: created.map(at) });
          const gone = [...staying][deleted];
          if (gone) staying.delete(gone);
          if (gone) expect((await ann.send('DELETE', `${SESSIONS}/${gone}`)).status).toBe(204);
        }
        const listed = seen.map(({ id }) => id);
        expect(listed).toEqual([...new Set(listed)]);
        expect([...staying].filter((id) => !listed.includes(id))).toEqual([]);
        const keys = seen.map((item) => item.created_at + item.id);
        expect(keys).toEqual(isAsc ? keys.toSorted() : keys.toSorted().reverse());
      },
    ),
    { numRuns: 40, seed: SEED },
  );
});
