import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { TurnLogReader } from '../../src/engine/turn-log-reader.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        { name: 'flood', annotations: { readOnlyHint: true }, handler: () => 'x'.repeat(256_000) },
      ],
    },
  });
});
afterAll(() => server.stop());

interface Listing {
  data: { type: string }[];
  pagination: { limit: number; next_page_token: string | null; previous_page_token: string | null };
}

const encode = (place: object) => Buffer.from(JSON.stringify(place)).toString('base64url');

/** Reads all pages of a listing. */
async function pages(url: string): Promise<Listing[]> {
  const all: Listing[] = [];
  for (let token: string | null = ''; token !== null;) {
    const page: Listing = await server.api.get(`${url}${url.includes('?') ? '&' : '?'}page_token=${token}`);
    all.push(page);
    token = page.pagination.next_page_token;
  }
  return all;
}

test('each listing has a default limit and a maximum', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'look' })], spec: onTestServer });
  const reader = chat.turn('hi');
  await reader.done;
  for (let i = 1; i < 11; i++) await chat.turn(`number ${i}`).done;
  const turnEvents = `${chat.path}/turns/${await reader.turnId()}/events`;
  for (const [url, byDefault, max] of [
    [`${chat.path}/turns`, 10, 25],
    [turnEvents, 25, 1000],
    [`${chat.path}/events`, 100, 1000],
  ] as const) {
    expect((await server.api.get<Listing>(url)).pagination.limit, url).toBe(byDefault);
    expect((await server.api.get<Listing>(`${url}?limit=`)).pagination.limit, url).toBe(byDefault);
    expect((await server.api.get<Listing>(`${url}?limit=${max}`)).pagination.limit, url).toBe(max);
    for (const bad of ['0', '-1', String(max + 1), '1.5', '0x5', '1e1', '+5', '%205', 'ten', '5&limit=6']) {
      const { status, body } = await server.api.send('GET', `${url}?limit=${bad}`);
      expect([status, body.error.param], `${url} ${bad}`).toEqual([400, 'limit']);
      expect(body.error.message).toBe(`limit: must be a number from 1 to ${max}`);
    }
  }
  const [first, second] = await pages(`${chat.path}/turns`);
  expect([first?.data.length, second?.data.length]).toEqual([10, 1]);
  expect(second?.pagination).toEqual({ limit: 10, next_page_token: null, previous_page_token: null });
  const bad = await server.api.send('GET', `${turnEvents}?order=up`);
  expect([bad.status, bad.body.error.param]).toEqual([400, 'order']);
});

test('a page token is valid only unchanged, and only for its listing', async () => {
  const [chat, other] = [await server.chat(), await server.chat()];
  for (const one of [chat, other]) for (const text of ['one', 'two', 'three']) await one.turn(text).done;
  const turnsOf = async ({ path: base }: { path: string }) =>
    (await server.api.list<{ id: string }>(`${base}/turns`, 25)).map(({ id }) => id);
  const [[last = '', before = ''], [foreign = '']] = [await turnsOf(chat), await turnsOf(other)];
  const events = `${chat.path}/turns/${last}/events`;
  const tokenOf = async (url: string): Promise<string> =>
    (await server.api.get<Listing>(`${url}?limit=1`)).pagination.next_page_token ?? '';

  // A request that has not become a turn.
  const asked = { id: 'turn_asked', session_id: chat.sessionId, created_at: new Date().toISOString() };
  await server.database.rows.insertInto('turns').values(asked).execute();

  const turns = `${chat.path}/turns`;
  const session = `${chat.path}/events`;
  const refused: [string, string][] = [
    [turns, await tokenOf(`${other.path}/turns`)],
    [turns, encode({ turn: foreign })],
    [turns, encode({ turn: 'turn_asked' })],
    [turns, encode({ turn: 'turn\0' })],
    [turns, encode({ turn: last, more: 1 })],
    [session, await tokenOf(`${other.path}/events`)],
    [session, await tokenOf(turns)],
    [session, encode({ turn: foreign, ordinal: 1 })],
    [session, encode({ turn: 'turn_asked', ordinal: 1 })],
    [session, encode({ turn: last, ordinal: 9 })],
    [session, encode({ turn: last, ordinal: 0 })],
    [session, encode({ ordinal: 1, turn: last })],
    [events, encode({ turn: last, order: 'desc', ordinal: 2 })],
    [events, encode({ turn: before, order: 'asc', ordinal: 2 })],
    [events, encode({ turn: last, order: 'asc', ordinal: 9 })],
    [`${events}?order=desc`, encode({ turn: last, order: 'desc', ordinal: 9 })],
    [`${events}?order=desc`, encode({ turn: last, order: 'asc', ordinal: 2 })],
  ];
  const good = await tokenOf(turns);
  for (const odd of [`${good}=`, `${good}A`, `${good}%20`, `!${good}`, good.slice(0, -1)]) refused.push([turns, odd]);
  for (const [url, token] of refused) {
    const answer = await server.api.send('GET', `${url}${url.includes('?') ? '&' : '?'}page_token=${token}`);
    expect([answer.status, answer.body.error?.code], `${url} ${token}`).toEqual([400, 'invalid_page_token']);
  }
  for (const url of [turns, session]) {
    expect((await server.api.get<Listing>(`${url}?page_token=${await tokenOf(url)}`)).data.length).toBeGreaterThan(0);
  }
});

test('a page ends early rather than becoming too large', async () => {
  const calls = Array.from({ length: 40 }, (_, i) => ({ name: 'flood', id: `f${i}` }));
  const chat = await server.chat({ scripts: [use(...calls), say('wet')], spec: onTestServer });
  const reader = chat.turn('go');
  await reader.done;
  const events = `${chat.path}/turns/${await reader.turnId()}/events`;
  for (const [url, count] of [
    [`${events}?limit=1000`, 43],
    [`${events}?limit=1000&order=desc`, 43],
    [`${chat.path}/events?limit=1000`, 45],
  ] as const) {
    const all = await pages(url);
    expect(all.length, url).toBe(2);
    for (const page of all) expect(JSON.stringify(page).length).toBeLessThan(8.1e6);
    expect(all[0]?.data.length).toBeGreaterThan(25);
    const items = all.flatMap(({ data }) => data.map((item) => JSON.stringify(item)));
    expect([items.length, new Set(items).size], url).toEqual([count, count]);
  }
});

test('a turn that cannot be read is left out of the lists of its session, which have the others', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two'), say('three')] });
  const turnIds: string[] = [];
  for (const text of ['1', '2', '3']) {
    const reader = chat.turn(text);
    turnIds.push(await reader.turnId());
    await reader.done;
  }
  const [first, damaged, last] = turnIds;
  // oxlint-disable-next-line typescript/unbound-method -- called with their reader
  const { firstAndLast, readBackwards } = TurnLogReader.prototype;
  const check = (id: string) => {
    if (id === damaged) throw new SyntaxError('the record is damaged');
  };
  vi.spyOn(TurnLogReader.prototype, 'firstAndLast').mockImplementation(async function (this: TurnLogReader, id) {
    check(id);
    return firstAndLast.call(this, id);
  });
  vi.spyOn(TurnLogReader.prototype, 'readBackwards').mockImplementation(async function* (
    this: TurnLogReader,
    id,
    options,
  ) {
    check(id);
    yield* readBackwards.call(this, id, options);
  });
  onTestFinished(() => void vi.restoreAllMocks());
  const { data: turns } = await server.api.get(`${chat.path}/turns`);
  expect(turns.map(({ id }: { id: string }) => id)).toEqual([last, first]);
  const { data: events } = await server.api.get<{ data: { turn_id: string }[] }>(`${chat.path}/events`);
  expect(new Set(events.map(({ turn_id: id }) => id))).toEqual(new Set([last, first]));
  expect((await server.api.send('GET', `${chat.path}/turns/${damaged}`)).status).toBe(500);
});
