import { createClient } from '@redis/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { ApiClient } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { TestRedis } from '../support/redis.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let redis: TestRedis;
/** Two processes of one Everturn... */
const servers: TestServer[] = [];
/** ... and another Everturn on the same Redis. */
let stranger: TestServer;
beforeAll(async () => {
  redis = await TestRedis.start();
  // As if Redis had started after the servers.
  await redis.down();
  const env = {
    REDIS_URL: redis.url,
    EVERTURN_TASK_QUEUE: newId('req'),
    EVERTURN_API_KEYS: 'ann=key-of-ann,bob=key-of-bob',
    EVERTURN_REQUESTS_PER_MINUTE: '4',
    EVERTURN_UNKNOWN_KEYS_PER_MINUTE: '2',
  };
  for (let i = 0; i < 2; i++) servers.push(await startTestServer({ env }));
  stranger = await startTestServer({ env: { ...env, EVERTURN_TASK_QUEUE: newId('req') } });
});
afterAll(async () => {
  for (const server of [...servers, stranger]) await server.stop();
  await redis.down();
});

/** The responses of each process, one request after the other. */
async function statuses(key: string, requests: number, processes = servers): Promise<number[]> {
  const answers = [];
  for (let i = 0; i < requests; i++) {
    const url = processes[i % processes.length]?.server.url ?? '';
    answers.push((await new ApiClient(url, key).send('GET', '/v1/agents')).status);
  }
  return answers;
}

/** The names of the counters in Redis that match a pattern. */
async function counters(pattern: string): Promise<string[]> {
  const client = createClient({ url: redis.url });
  await client.connect();
  try {
    return await client.keys(pattern);
  } finally {
    client.destroy();
  }
}

/**
 * Makes requests until these processes reject them all: not just those beyond the limit, since a process admits a request
 * that it could not count in time. They then have so many counters; each of these ends after a minute.
 */
async function allReject(
  key: string,
  { processes = servers, pattern, count }: { processes?: TestServer[]; pattern: string; count: number },
): Promise<void> {
  const counted = await eventually(async () => {
    expect(await statuses(key, processes.length, processes)).toEqual(processes.map(() => 429));
    const found = await counters(pattern);
    expect(found.length).toBeGreaterThanOrEqual(count);
    return found;
  });
  expect(counted).toHaveLength(count);
}

test('processes with one Redis count together; while it is unavailable or hangs all requests are admitted', async () => {
  expect(await statuses('key-of-ann', 6)).toEqual([200, 200, 200, 200, 200, 200]);
  await redis.up();
  // The clients reconnect by themselves.
  for (const processes of [servers, [stranger]]) {
    await expect.poll(async () => (await statuses('key-of-ann', 8, processes)).includes(429)).toBe(true);
  }
  await expect.poll(async () => (await statuses('key-of-ann', 2)).join()).toBe('429,429');
  const [ofBob, ofGuesses] = ['*:requests:bob', '*:unknown-keys:*'];
  expect(await statuses('key-of-bob', 4)).toEqual([200, 200, 200, 200]);
  await allReject('key-of-bob', { pattern: ofBob, count: 1 });
  expect(await statuses('guess', 2)).toEqual([401, 401]);
  await allReject('guess', { pattern: ofGuesses, count: 1 });
  expect(await statuses('key-of-bob', 4, [stranger])).toEqual([200, 200, 200, 200]);
  await allReject('key-of-bob', { processes: [...servers, stranger], pattern: ofBob, count: 2 });
  redis.hang();
  expect(await statuses('key-of-bob', 2)).toEqual([200, 200]);
  expect(await statuses('guess', 2)).toEqual([401, 401]);
  redis.goOn();
  await expect.poll(async () => (await statuses('key-of-bob', 2)).join()).toBe('429,429');
});
