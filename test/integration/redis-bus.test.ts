import { pino } from 'pino';
import { afterAll, beforeAll, test } from 'vitest';
import { RedisBus } from '../../src/live/redis-bus.ts';
import { openRedis, type Redis } from '../../src/redis.ts';
import { checkCentralProperty, type BusEnds } from '../support/central-property.ts';
import { TestRedis } from '../support/redis.ts';

let server: TestRedis;
let connections: Redis[];
let ends: BusEnds;

beforeAll(async () => {
  server = await TestRedis.start();
  const log = pino({ level: 'silent' });
  const open = () => openRedis({ url: server.url, log });
  connections = await Promise.all([open(), open()]);
  const [worker, api] = connections.map((redis) => new RedisBus({ redis, prefix: 'everturn:test:', log }));
  if (worker && api) ends = { worker, api };
});
afterAll(async () => {
  for (const connection of connections) connection.close();
  await server.down();
});

test('every cut of a stream, resumed at any time, folds to the log', async () => {
  await checkCentralProperty(ends, 300);
});
