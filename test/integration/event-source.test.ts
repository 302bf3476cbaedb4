import { afterAll, beforeAll, expect, test } from 'vitest';
import { Agent, EventSource } from 'undici';
import { folded, type Frame } from '../support/api-client.ts';
import { held, say } from '../support/scripted-model.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** `GET …/stream` as a browser's EventSource uses it: it reconnects by itself until it is told to stop. */

let server: TestServer;
let proxy: TcpProxy;
beforeAll(async () => {
  server = await startTestServer();
  proxy = await TcpProxy.start(new URL(server.server.url).host);
});
afterAll(async () => {
  await proxy.stop();
  await server.stop();
});

/** A real EventSource, with its requests and the events that it received. */
class Listener {
  readonly frames: Frame[] = [];
  /** The `Last-Event-ID` of each of its requests. */
  readonly requests: (string | undefined)[] = [];
  /** Resolves when it no longer reconnects. */
  readonly closed: Promise<void>;
  readonly #source: EventSource;

  constructor(path: string) {
    const dispatcher = new Agent().compose((dispatch) => (options, handler) => {
      const headers = new Headers(options.headers as Record<string, string>);
      this.requests.push(headers.get('last-event-id') ?? undefined);
      return dispatch(options, handler);
    });
    this.#source = new EventSource(`http://${proxy.address}${path}`, { node: { dispatcher, reconnectionTime: 50 } });
    this.#source.addEventListener('message', ({ data }) => this.frames.push(JSON.parse(data) as Frame));
    this.closed = new Promise((resolve) => {
      this.#source.addEventListener('error', () => {
        if (this.#source.readyState === this.#source.CLOSED) resolve();
      });
    });
  }

  says(text: string): Promise<unknown> {
    return expect.poll(() => JSON.stringify(folded(this.frames))).toContain(text);
  }
}

test('an EventSource follows a turn to its end, and then stops', async () => {
  const model = held(
    (call) => call.text('Once upon '),
    (call) => call.text('a time').finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('go');
  const path = `${chat.path}/turns/${await reader.turnId()}/stream`;
  const listener = new Listener(path);
  await listener.says('Once upon');
  model.release();
  await listener.closed;
  const whole = folded(await reader.done);
  expect(folded(listener.frames)).toEqual(whole);
  const last = listener.frames.at(-1);
  expect(last?.type).toBe('turn.done');
  expect(listener.requests).toEqual([undefined, String(last?.sequence_number)]);
  // A reader that connects after the end gets nothing more either, whether or not the log is in the archive.
  const later = new Listener(path);
  await later.closed;
  expect(folded(later.frames)).toEqual(whole);
  expect(later.requests).toEqual([undefined, String(last?.sequence_number)]);
});

test('an EventSource whose connection breaks resumes at its position, whatever its first cursor', async () => {
  const model = held(
    (call) => call.text('Half a '),
    (call) => call.text('word').finish(),
  );
  const chat = await server.chat({ scripts: [say('first'), model.script] });
  await chat.turn('one').done;
  const reader = chat.turn('two');
  await reader.says('Half a');
  const [created] = reader.frames;
  const seen = created?.sequence_number ?? 0;
  const path = `${chat.path}/turns/${await reader.turnId()}/stream`;
  const [whole, behind] = [new Listener(path), new Listener(`${path}?after_sequence_number=${seen}`)];
  await Promise.all([whole.says('Half a'), behind.says('Half a')]);
  proxy.down();
  model.release();
  await reader.done;
  proxy.up();
  await Promise.all([whole.closed, behind.closed]);
  expect(folded(whole.frames)).toEqual(folded(await reader.done));
  expect(behind.frames[0]?.type).not.toBe('turn.created');
  expect(folded(reader.frames.slice(0, 1), behind.frames)).toEqual(folded(await reader.done));
  // Its own cursor takes precedence over the one in the URL, which never changes.
  expect(Number(behind.requests[1])).toBeGreaterThan(seen);
});

test('a cursor at the end is answered with 204, an impossible one rejected, and HEAD does not wait', async () => {
  const model = held(
    (call) => call.text('...'),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [say('done'), model.script] });
  const frames = await chat.turn('one').done;
  const reader = chat.turn('two');
  await reader.says('...');
  const turns = await server.api.list<{ id: string }>(`${chat.path}/turns`, 25);
  const [running = '', ended = ''] = turns.map(({ id }) => id);
  const end = frames.at(-1)?.sequence_number;
  const get = (turn: string, query: string, headers = {}) =>
    server.api.send('GET', `${chat.path}/turns/${turn}/stream${query}`, undefined, headers);
  const { rows } = server.database;
  const isArchived = async () =>
    (await rows.selectFrom('turns').selectAll().where('id', '=', ended).execute())[0]?.archived;
  for (const archived of [0, 1]) {
    if (archived) await expect.poll(isArchived).toBe(1);
    expect((await get(ended, `?after_sequence_number=${end}`)).status).toBe(204);
    expect((await get(ended, '', { 'last-event-id': String(end) })).status).toBe(204);
  }
  for (const [query, headers, code] of [
    ['?after_sequence_number=-1', {}, 'invalid_request'],
    ['?after_sequence_number=x', { 'last-event-id': '1000000' }, 'invalid_request'],
    ['?after_sequence_number=99000000', {}, 'invalid_cursor'],
    ['', { 'last-event-id': 'x' }, 'invalid_cursor'],
  ] as const) {
    const { status, body } = await get(ended, query, headers);
    expect([status, body.error.code], query).toEqual([400, code]);
  }
  expect((await get('turn_unknown', '')).status).toBe(404);
  const head = await fetch(`${server.api.url}${chat.path}/turns/${running}/stream`, { method: 'HEAD' });
  expect([head.status, head.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
  reader.close();
  await server.api.send('POST', `${chat.path}/cancel`, {});
  model.release();
});
