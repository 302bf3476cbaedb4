import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { LiveBus } from '../../src/live/bus.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { RedisBus } from '../../src/live/redis-bus.ts';
import { openRedis, type Redis } from '../../src/lib/redis.ts';
import { folded, type EventReader, type Frame } from '../support/api-client.ts';
import { LossyBus, mulberry32 } from '../support/lossy-bus.ts';
import { TestRedis } from '../support/redis.ts';
import { SEED } from '../support/seed.ts';
import { held, say, use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startOn(new InProcessBus());
});
afterAll(() => server.stop());

/** A server whose bus uses all of its contract's freedom: it drops, duplicates and reorders. */
function startOn(bus: LiveBus): Promise<TestServer> {
  return startTestServer({
    bus: new LossyBus(SEED, bus),
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        { name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' },
        { name: 'hang', handler: () => new Promise(() => undefined) },
      ],
    },
  });
}

/**
 * Cuts after some event, or after `exactly` so many, reconnects, and so on to the end; gives what the client has then.
 */
async function readInPieces(
  { api }: TestServer,
  chat: Chat,
  first: EventReader,
  random: () => number,
  exactly?: number,
): Promise<Frame[]> {
  const turnId = await first.turnId();
  let reader = first;
  const all: Frame[] = [];
  for (;;) {
    const enough = exactly ?? Math.ceil(random() * 6);
    await reader.next((frame) => frame.type === 'turn.done' || reader.frames.length >= enough);
    const taken = reader.frames.slice(0, exactly !== undefined || random() < 0.7 ? enough : undefined);
    reader.close();
    all.push(...taken);
    if (taken.at(-1)?.type === 'turn.done') return all;
    reader = api.subscribe(chat.sessionId, turnId, all.at(-1)?.sequence_number, random() < 0.5 ? 'body' : 'header');
  }
}

/** The events of a turn as the lists have them. */
async function listed({ api }: TestServer, chat: Chat, turnId: string): Promise<object[]> {
  const items = await api.list<{ turn_id: string; event: object }>(`${chat.path}/events?last_turn_id=${turnId}`, 7);
  return items
    .filter((item) => item.turn_id === turnId)
    .map(({ event }) => event)
    .reverse();
}

/** Words, slowly enough for readers to connect and disconnect in between. */
function slowly(words: number, then: (call: Parameters<Script>[0]) => void): Script {
  return async (call) => {
    for (let i = 0; i < words; i++) {
      call.text(`word${i} `);
      await new Promise((resolve) => setImmediate(resolve));
    }
    then(call);
  };
}

const turns: Record<
  string,
  {
    scripts: Script[];
    during?: (server: TestServer, chat: Chat, reader: EventReader) => Promise<unknown>;
    status: string;
  }
> = {
  'that is done': {
    scripts: [use({ name: 'look' }, { name: 'look' }), slowly(40, (call) => call.finish())],
    status: 'done',
  },
  'that waits for approval': {
    scripts: [slowly(10, (call) => void call.toolCall('write', {}).toolCall('look', {}).finish())],
    status: 'done',
  },
  'whose model fails and is asked again': {
    scripts: [slowly(15, (call) => call.cut()), slowly(7, (call) => call.end()), slowly(20, (call) => call.finish())],
    status: 'done',
  },
  'that ends in error': {
    scripts: [use({ name: 'look' }), (call) => call.fail(400, 'no more')],
    status: 'error',
  },
  'that is cut off by its token limit': {
    scripts: [slowly(12, (call) => call.finish('length'))],
    status: 'error',
  },
  'that is cancelled in mid-stream': {
    scripts: [slowly(20, () => undefined)],
    during: async (server, chat, reader) => {
      await reader.says('word3');
      await server.api.send('POST', `${chat.path}/cancel`, {});
    },
    status: 'cancelled',
  },
  'that is cancelled in mid-tool': {
    scripts: [slowly(5, (call) => void call.toolCall('hang', {}).finish())],
    during: async (server, chat) => {
      await expect.poll(() => server.mcp.calls.some(({ tool }) => tool === 'hang')).toBe(true);
      await server.api.send('POST', `${chat.path}/cancel`, {});
    },
    status: 'cancelled',
  },
};

function holdsCentralProperty(serverOf: () => TestServer): void {
  const random = mulberry32(SEED);
  test.each(Object.entries(turns))('a turn %s', async (_, { scripts, during, status }) => {
    const server = serverOf();
    // What a speculative call has answered before its turn is accepted is sent as one.
    const connected = Promise.withResolvers<void>();
    const whenConnected = scripts.map(
      (script): Script =>
        (call) =>
          connected.promise.then(() => script(call)),
    );
    const chat = await server.chat({ scripts: whenConnected, spec: onTestServer });
    const uninterrupted = chat.turn('go');
    const turnId = await uninterrupted.turnId();
    connected.resolve();
    // Readers whose connections are cut repeatedly while the turn runs.
    const pieces = [1, 2, undefined, undefined, undefined].map((exactly) =>
      readInPieces(server, chat, server.api.subscribe(chat.sessionId, turnId), random, exactly),
    );
    await during?.(server, chat, uninterrupted);
    const frames = await uninterrupted.done;
    expect((await uninterrupted.end()).status).toBe(status);
    const whole = folded(frames);
    for (const taken of await Promise.all(pieces)) expect(folded(taken)).toEqual(whole);
    expect(await listed(server, chat, turnId)).toEqual(whole);

    // Every cut point, after the turn has ended, by body and by header.
    for (const how of ['body', 'header'] as const) {
      for (let cut = 0; cut <= frames.length; cut++) {
        const before = frames.slice(0, cut);
        const rest = await server.api.subscribe(chat.sessionId, turnId, before.at(-1)?.sequence_number ?? 0, how).done;
        expect(folded(before, rest)).toEqual(whole);
        const last = before.at(-1)?.sequence_number ?? 0;
        expect(rest[0]?.sequence_number ?? Infinity).toBeGreaterThan(last);
      }
    }
  });
}

describe(`the central property, over a lossy bus (SEED=${SEED})`, () => {
  holdsCentralProperty(() => server);
});

describe(`the central property, over a lossy bus on Redis (SEED=${SEED})`, () => {
  let redis: TestRedis;
  let connections: Redis;
  let apart: TestServer;
  beforeAll(async () => {
    const log = pino({ level: 'silent' });
    redis = await TestRedis.start();
    connections = await openRedis({ url: redis.url, log });
    apart = await startOn(new RedisBus({ redis: connections, prefix: 'everturn:test:', log }));
  });
  afterAll(async () => {
    await apart.stop();
    connections.close();
    await redis.down();
  });
  holdsCentralProperty(() => apart);
});

test('a turn continues when it has no reader', async () => {
  const model = held(
    (call) => call.text('I go '),
    (call) => call.text('on').finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('hi');
  const turnId = await reader.turnId();
  reader.close();
  const { data: running } = await server.api.get(`${chat.path}/turns/${turnId}`);
  expect(running).toMatchObject({ id: turnId, session_id: chat.sessionId, state: { status: 'running' } });
  model.release();
  await expect.poll(async () => (await server.api.get(`${chat.path}/turns/${turnId}`)).data.state.status).toBe('done');
  const replay = await server.api.subscribe(chat.sessionId, turnId).done;
  expect(folded(replay)[1]).toMatchObject({ content: 'I go on' });
});

test('stream: false returns the turn at once; while it runs, its events so far are listed', async () => {
  const model = held(
    () => undefined,
    (call) => call.text('late').finish(),
  );
  const chat = await server.chat({ scripts: [use({ name: 'look' }), model.script], spec: onTestServer });
  const { status, body } = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'hi' }],
    stream: false,
  });
  expect(status).toBe(200);
  expect(body.data).toMatchObject({
    session_id: chat.sessionId,
    previous_turn_id: null,
    input: [{ type: 'user.message', content: 'hi' }],
    state: { status: 'running' },
    created_by_subject: { subject_slug: 'local' },
  });
  await model.reached;
  const path = `${chat.path}/turns/${body.data.id}`;
  const types = async () => (await server.api.list<{ type: string }>(`${path}/events`, 2)).map(({ type }) => type);
  // A speculative call reaches the model before the step is recorded.
  await expect.poll(types).toEqual(['mcp.initialize', 'model.message', 'tool.response']);
  // The session's listing omits a running turn.
  expect(await server.api.list(`${chat.path}/events`)).toEqual([]);
  model.release();
  await expect.poll(async () => (await server.api.get(path)).data.state.status).toBe('done');
  expect(await types()).toEqual(['mcp.initialize', 'model.message', 'tool.response', 'model.message']);
  const newestFirst = await server.api.list<{ type: string }>(`${path}/events?order=desc`, 3);
  expect(newestFirst.map(({ type }) => type)).toEqual((await types()).toReversed());
});

test('a cursor that no stream of the turn has sent is rejected', async () => {
  const chat = await server.chat({ scripts: [say('hi')] });
  const reader = chat.turn('hello');
  const turnId = await reader.turnId();
  const last = (await reader.done).at(-1)?.sequence_number ?? 0;
  const path = `${chat.path}/turns/${turnId}/subscribe`;
  const refused = [
    [{ after_sequence_number: -1 }, {}, 'invalid_request'],
    [{ after_sequence_number: 1.5 }, {}, 'invalid_request'],
    [{ after_sequence_number: '7' }, {}, 'invalid_request'],
    [{ after_sequence_number: last + 1_000_000 }, {}, 'invalid_cursor'],
    [{ after_sequence_number: 1_999_999 }, {}, 'invalid_cursor'],
    [{}, { 'last-event-id': 'abc' }, 'invalid_cursor'],
    [{}, { 'last-event-id': '-5' }, 'invalid_cursor'],
  ] as const;
  for (const [body, headers, code] of refused) {
    const answer = await server.api.send('POST', path, body, headers);
    expect([answer.status, answer.body.error.code], JSON.stringify([body, headers])).toEqual([400, code]);
  }
  // At the end there is nothing more, which is no error; null and a missing body mean the beginning.
  expect(await server.api.subscribe(chat.sessionId, turnId, last).done).toEqual([]);
  expect((await server.api.stream(path, { after_sequence_number: null }).done).length).toBeGreaterThan(3);
  expect((await server.api.stream(path, undefined).done).length).toBeGreaterThan(3);
});

test('a cursor beyond the end of a running turn is rejected too', async () => {
  const model = held(
    (call) => call.text('...'),
    (call) => call.finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  const turnId = await chat.turn('hello').turnId();
  const answer = await server.api.send('POST', `${chat.path}/turns/${turnId}/subscribe`, {
    after_sequence_number: 9_000_000,
  });
  expect([answer.status, answer.body.error.code]).toEqual([400, 'invalid_cursor']);
  model.release();
});

test('a wrong cursor does not affect the other readers of the turn', async () => {
  const model = held(
    (call) => call.text('I '),
    (call) => call.text('go on').finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  const first = chat.turn('hello');
  const turnId = await first.turnId();
  first.close();
  const wrong = server.api.subscribe(chat.sessionId, turnId, 9_000_000);
  const right = server.api.subscribe(chat.sessionId, turnId);
  await right.turnId();
  await model.reached;
  model.release();
  expect(await right.end()).toMatchObject({ status: 'done', output: { content: 'I go on' } });
  await right.done;
  await expect(wrong.done).rejects.toThrow(/invalid_cursor/);
});
