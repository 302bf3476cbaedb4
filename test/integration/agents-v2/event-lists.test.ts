import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { ApiClient } from '../../support/api-client.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

interface Event {
  type: string;
  timestamp: string;
  data: { kind?: string };
}

interface Page {
  items: Event[];
  total: number;
}

let server: TestServer;
let api: ApiClient;
let path: string;
let all: Event[];
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann=key-of-ann' } });
  api = new ApiClient(server.api.url, 'key-of-ann');
  server.model.script('desk', say('One.'), say('Two.'), say('Three.'));
  const session = await talkThrice('desk');
  ({ path } = session);
  all = (await api.get<Page>(`${path}/events?size=200`)).items;
});
afterAll(() => server.stop());

/** A session of three turns. */
async function talkThrice(agent: string): Promise<AgentSession> {
  const session = await AgentSession.create(api, {
    agent: agentNamed(agent),
    messages: 'Hi',
    idle_timeout_s: 3_600,
  });
  await session.settle();
  for (const message of ['Again', 'And again']) {
    await session.say(message);
    await session.settle();
  }
  return session;
}

/** All pages of a list. */
async function pages(query: string): Promise<Event[]> {
  const items: Event[] = [];
  for (let page = 1; ; page++) {
    const { items: next, total } = await api.get<Page>(`${path}/events?size=2&page=${page}&${query}`);
    items.push(...next);
    if (next.length === 0) {
      expect(total).toBe(items.length);
      return items;
    }
  }
}

test('events are listed in the order of their timestamps or against it, by pages', async () => {
  expect(all.length).toBeGreaterThan(10);
  expect(await pages('sort=timestamp')).toEqual(all);
  expect(await pages('sort=-timestamp')).toEqual(all.toReversed());
  // As one client sends a list.
  expect(await pages(`sort=${encodeURIComponent('["-timestamp"]')}`)).toEqual(all.toReversed());
});

test.each(['AgentEvent', 'MetricsUpdateEvent', 'RequestStartEvent', 'Unknown'])(
  'events of the type %s are listed over all turns',
  async (type) => {
    const expected = all.filter((event) => event.type === type);
    expect(await pages(`type=${type}`)).toEqual(expected);
    expect(await pages(`type=${type}&sort=-timestamp`)).toEqual(expected.toReversed());
  },
);

test('another order is rejected', async () => {
  expect((await api.send('GET', `${path}/events?sort=type`)).status).toBe(422);
  expect((await api.send('GET', `${path}/events?sort=timestamp&sort=`)).status).toBe(422);
});

test('a page is not cut, however large its events are', async () => {
  server.model.script('talker', ...['a', 'b', 'c'].map((letter) => say(letter.repeat(2 * 1024 * 1024))));
  const session = await talkThrice('talker');
  const { items, total } = await api.get<Page>(`${session.path}/events?size=200`);
  expect(items).toHaveLength(total);
  expect(items.map(({ data }) => data.kind).filter((kind) => kind === 'answer_event')).toHaveLength(3);
  const newestFirst = await api.get<Page>(`${session.path}/events?size=200&sort=-timestamp`);
  expect(newestFirst.items).toEqual(items.toReversed());
});

test('a page adds no more listeners to its response than Node takes for right', async () => {
  const warnings: Error[] = [];
  const note = (warning: Error) => void warnings.push(warning);
  process.on('warning', note);
  onTestFinished(() => void process.off('warning', note));
  await api.get(`${path}/events`);
  expect(warnings).toEqual([]);
});
