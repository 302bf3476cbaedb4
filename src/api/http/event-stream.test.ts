import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Response } from 'express';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { oneResponse } from '../../../test/support/one-response.ts';
import { Metrics } from '../../telemetry/metrics.ts';
import { EventStream } from './event-stream.ts';

const metrics = new Metrics();

beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterEach(() => void vi.useRealTimers());

/** A stream to a client that controls when it reads. */
async function connected(): Promise<{ stream: EventStream; response: Response; client: IncomingMessage }> {
  const opened = Promise.withResolvers<EventStream>();
  const { response, client } = await oneResponse((given) => {
    const stream = new EventStream(given, metrics);
    stream.open();
    opened.resolve(stream);
  });
  client.setEncoding('utf8');
  return { stream: await opened.promise, response, client };
}

const event = (id: number, content = 'hi') => ({ id, data: { type: 'delta', content } });

test('an event is an id and one line of data; the headers disable caching and buffering on the way', async () => {
  const { stream, client } = await connected();
  stream.push([event(1_000_001, 'a\nb')]);
  const [text] = (await once(client, 'data')) as [string];
  expect(text).toBe('id: 1000001\ndata: {"type":"delta","content":"a\\nb"}\n\n');
  expect(client.headers).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  });
  stream.end();
});

test('a silent stream sends a comment every 15 seconds until it ends', async () => {
  const { stream, client } = await connected();
  for (let i = 0; i < 3; i++) {
    vi.advanceTimersByTime(15_000);
    expect(await once(client, 'data')).toEqual([': hb\n\n']);
  }
  stream.end();
  await new Promise<void>((resolve) => void stream.onClosed(resolve));
  expect(vi.getTimerCount()).toBe(0);
});

test('a slow reader is reported, and can be awaited', async () => {
  const { stream, client } = await connected();
  let keepsUp = true;
  let sent = 0;
  for (; keepsUp; sent++) keepsUp = stream.push([event(1_000_001 + sent, 'x'.repeat(500_000))]);
  expect(sent).toBeLessThan(40);
  let received = 0;
  client.on('data', (text: string) => (received += text.split('\n\n').length - 1));
  await stream.flush();
  expect(stream.push([event(2_000_000)])).toBe(true);
  stream.end();
  await once(client, 'end');
  expect(received).toBe(sent + 1);
});

test('a slow reader of a long message is sent at first what may be buffered, and the rest as it reads', async () => {
  const { stream, response, client } = await connected();
  const bytes = 200_000;
  let taken = 0;
  function* message(count: number) {
    for (let i = 0; i < count; i++) yield event((taken += 1), 'x'.repeat(bytes));
  }
  while (stream.push(message(1)));
  expect(response.writableLength).toBeLessThan(256 * 1024 + 2 * bytes);
  const before = taken;
  expect(stream.push(message(10))).toBe(false);
  expect(taken).toBe(before + 1);
  let received = '';
  client.on('data', (text: string) => (received += text));
  await stream.flush();
  stream.end();
  await once(client, 'end');
  expect([...received.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))).toEqual(
    Array.from({ length: before + 10 }, (_, i) => i + 1),
  );
});

test('nothing is written to a reader that has hung up', async () => {
  const { stream, response, client } = await connected();
  client.destroy();
  await new Promise<void>((resolve) => void stream.onClosed(resolve));
  expect(stream.isClosed).toBe(true);
  await stream.write([event(1_000_001)]);
  expect(stream.push([event(1_000_002)])).toBe(true);
  expect(response.writableLength).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

test('a reader that reads nothing for a minute is disconnected and counted', async () => {
  const { stream, client } = await connected();
  const count = async () => (await metrics.readersDisconnected.get()).values[0]?.value;
  const readers = async () => (await metrics.readers.get()).values[0]?.value;
  const before = (await count()) ?? 0;
  expect(await readers()).toBe(1);
  client.on('error', () => undefined);
  while (stream.push([event(1_000_001, 'x'.repeat(500_000))]));
  const flushed = stream.flush();
  vi.advanceTimersByTime(60_000);
  await flushed;
  expect(stream.isClosed).toBe(true);
  expect([await count(), await readers()]).toEqual([before + 1, 0]);
});
