import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Response } from 'express';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import { oneResponse } from '../../../test/support/one-response.ts';
import type { Catalog } from '../../features/catalog.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import { TurnTailPool } from '../../live/turn-tail.ts';
import { BEGINNING } from '../../core/cursor.ts';
import { Metrics } from '../../telemetry/metrics.ts';
import type { TurnLogReader } from '../../engine/turn-log-reader.ts';
import { EventStream } from '../http/event-stream.ts';
import { streamTurn } from '../http/turn-stream.ts';
import { TurnEventReader } from './turn-event-reader.ts';
import { OWNER } from '../../../test/support/readers.ts';

const MESSAGE = { turnId: 'turn_1', threadId: 'main', messageId: 'msg_1', createdAt: 'now', after: 0, attempt: 1 };

/** A client of a turn's stream that reads only on demand, with the response that the server writes to. */
async function subscriber(bus: InProcessBus): Promise<{ response: Response; client: IncomingMessage }> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a log without entries
  const logs = {
    firstUnarchived: () => Promise.resolve(1),
    read: async function* (_: string, { follow }: { follow: AbortSignal }) {
      yield [];
      await once(follow, 'abort');
    },
  } as unknown as TurnLogReader;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the methods that are called here
  const catalog = { turns: { get: () => Promise.resolve(undefined) } } as unknown as Catalog;
  const tails = new TurnTailPool({ logs, bus, log: pino({ level: 'silent' }) });
  return oneResponse((response) => {
    const stream = new EventStream(response, new Metrics());
    const reader = new TurnEventReader({ cursor: BEGINNING, stream, view: 'default', reader: OWNER });
    return streamTurn({ context: { catalog, logs, tails }, turnId: 'turn_1', reader });
  });
}

test('the text so far of a message is not buffered for a reader that does not keep up', async () => {
  const bus = new InProcessBus();
  const piece = '\u{1f600}'.repeat(50_000);
  for (let n = 0; n < 40; n++) bus.publish({ ...MESSAGE, n, delta: { content: piece } });
  const { response, client } = await subscriber(bus);
  // 8 MB: more than the network takes from a server whose client does not read.
  while (!response.writableNeedDrain) await new Promise((resolve) => void setImmediate(resolve));
  expect(response.writableLength).toBeLessThan(1024 * 1024);
  const chunks: string[] = [];
  client.setEncoding('utf8');
  client.on('data', (chunk: string) => chunks.push(chunk));
  bus.publish({ ...MESSAGE, n: 40, delta: { content: 'the last of it' } });
  while (!chunks.slice(-2).join('').includes('the last of it')) await once(client, 'data');
  const text = chunks.join('');
  const contents = [...text.matchAll(/"content":"([^"]*)"/g)].map(([, content]) => content);
  expect(contents.join('')).toBe(`${piece.repeat(40)}the last of it`);
});

test('the id of an event is its sequence number, which is also in its data', async () => {
  const bus = new InProcessBus();
  bus.publish({ ...MESSAGE, n: 0, delta: { content: 'a\nb' } });
  const { client } = await subscriber(bus);
  let text = '';
  client.setEncoding('utf8');
  client.on('data', (chunk: string) => (text += chunk));
  while (!text.includes('a\\nb')) await once(client, 'data');
  expect(text).toBe(
    'id: 1\ndata: {"type":"model.message","id":"msg_1","created_at":"now","thread_id":"main","content":"","tool_calls":[],"sequence_number":1}\n\n' +
      'id: 2\ndata: {"type":"model.message.delta","id":"msg_1","thread_id":"main","content":"a\\nb","sequence_number":2}\n\n',
  );
});
