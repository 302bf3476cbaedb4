import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { openRedis } from '../../src/lib/redis.ts';
import { TestRedis } from '../support/redis.ts';

interface Line {
  level: number;
  msg: string;
}

async function openWithLog(server: TestRedis) {
  const lines: Line[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line) as Line) });
  const redis = await openRedis({ url: server.url, log });
  onTestFinished(redis.close);
  return { redis, messages: () => lines.map(({ msg }) => msg) };
}

const UNAVAILABLE = 'Redis is unavailable; reconnecting';
const AVAILABLE = 'Redis is available again';

test('an unavailable Redis does not prevent the start; commands fail at once, and the log has one line per outage', async () => {
  const server = await TestRedis.start();
  onTestFinished(() => server.down());
  await server.down();
  const { redis, messages } = await openWithLog(server);
  await expect(redis.commands.ping()).rejects.toThrow('offline');
  await server.up();
  await expect.poll(messages).toEqual([UNAVAILABLE, AVAILABLE]);
  expect(await redis.commands.ping()).toBe('PONG');

  const heard: string[] = [];
  await redis.subscriptions.subscribe('news', (text) => heard.push(text));
  await server.down();
  await expect.poll(messages).toEqual([UNAVAILABLE, AVAILABLE, UNAVAILABLE]);
  await server.up();
  await expect.poll(messages).toEqual([UNAVAILABLE, AVAILABLE, UNAVAILABLE, AVAILABLE]);
  await redis.commands.publish('news', 'subscribed still');
  await expect.poll(() => heard).toEqual(['subscribed still']);
});

test('the connection to a Redis that hangs is closed, also while commands are queued, and opened again', async () => {
  const server = await TestRedis.start();
  onTestFinished(() => server.down());
  const { redis, messages } = await openWithLog(server);
  server.hang();
  const pending = redis.commands.get('x');
  pending.catch(() => undefined);
  const busy = setInterval(() => void redis.commands.set('x', 'y').catch(() => undefined), 100);
  onTestFinished(() => clearInterval(busy));
  await expect.poll(messages).toEqual([UNAVAILABLE]);
  await expect(pending).rejects.toThrow('Disconnects client');
  server.goOn();
  await expect.poll(messages).toEqual([UNAVAILABLE, AVAILABLE]);
});
