import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { openRedis } from '../../src/lib/redis.ts';
import type { Allowance } from '../../src/models/allowance.ts';
import { redisAllowance } from '../../src/models/redis-allowance.ts';
import { newId } from '../../src/engine/new-id.ts';
import { PROTOCOLS, sending, startEndpoint } from '../support/model-protocols.ts';
import { TestRedis } from '../support/redis.ts';
import { startTestServer } from '../support/test-server.ts';

let redis: TestRedis;
beforeAll(async () => {
  redis = await TestRedis.start();
});
afterAll(() => redis.down());

const NONE = { concurrency: Infinity, requestsPerMinute: Infinity, tokensPerMinute: Infinity };
const call = (id: string, tokens = 0) => ({ id, tokens });

/** Longer than Redis takes on a busy machine: without its reply a worker would observe the limits alone. */
const RESPONSE_TIMEOUT_MS = 100_000;

/** The allowances of two workers of one Everturn. */
async function twoWorkers(
  limits: Partial<typeof NONE>,
  options: { responseTimeoutMs?: number } = { responseTimeoutMs: RESPONSE_TIMEOUT_MS },
): Promise<[Allowance, Allowance]> {
  const prefix = newId('req');
  const open = async () => {
    const opened = await openRedis({ url: redis.url, log: pino({ level: 'silent' }) });
    onTestFinished(opened.close);
    return redisAllowance({ redis: opened, prefix, limits: { ...NONE, ...limits }, ...options });
  };
  return [await open(), await open()];
}

test('workers share the number of concurrent calls', async () => {
  const [one, other] = await twoWorkers({ concurrency: 1 });
  expect(await one.take(call('a'))).toBe(0);
  expect(await other.take(call('b'))).toBeGreaterThan(0);
  await one.giveBack(call('a'), 0);
  expect(await other.take(call('b'))).toBe(0);
  expect(await one.take(call('c'))).toBeGreaterThan(0);
});

test('workers share rates, and correct them to what their calls used', async () => {
  const [one, other] = await twoWorkers({ requestsPerMinute: 3, tokensPerMinute: 6_000 });
  const begun = performance.now();
  expect(await one.take(call('a', 1_000))).toBe(0);
  await one.giveBack(call('a', 1_000), 5_900);
  const wait = await other.take(call('b', 1_000));
  expect(wait).toBeGreaterThan(8_000 - (performance.now() - begun));
  expect(wait).toBeLessThanOrEqual(9_000);
  expect(await other.take(call('c', 10))).toBe(0);
  expect(await one.take(call('d', 10))).toBe(0);
  // One more request is allowed 20 s after the first.
  const next = await one.take(call('e', 10));
  expect(next).toBeGreaterThan(19_000 - (performance.now() - begun));
  expect(next).toBeLessThanOrEqual(20_000);
});

test('asking often does not use up the limits', async () => {
  const [one, other] = await twoWorkers({ requestsPerMinute: 2, concurrency: 1 });
  expect(await one.take(call('a'))).toBe(0);
  for (let i = 0; i < 20; i++) expect(await other.take(call('b'))).toBeGreaterThan(0);
  await one.giveBack(call('a'), 0);
  expect(await other.take(call('b'))).toBe(0);
});

test('without Redis each worker observes the limits alone', async () => {
  const [one, other] = await twoWorkers({ concurrency: 1 }, {});
  await redis.down();
  try {
    expect(await one.take(call('a'))).toBe(0);
    expect(await other.take(call('b'))).toBe(0);
    expect(await other.take(call('c'))).toBeGreaterThan(0);
  } finally {
    await redis.up();
  }
});

test('a turn whose model call waits for another turn can be cancelled, or continues when that one ends', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-limits-'));
  const endpoint = await startEndpoint();
  const provider = {
    kind: 'anthropic',
    base_url: endpoint.url,
    limits: { concurrency: 1 },
    models: { 'claude-x': {} },
  };
  const file = path.join(folder, 'providers.json');
  await writeFile(file, JSON.stringify({ providers: { claude: provider } }));
  const server = await startTestServer({ env: { EVERTURN_MODEL_PROVIDERS: file, REDIS_URL: redis.url } });
  onTestFinished(async () => {
    await server.stop();
    await endpoint.stop();
    await rm(folder, { recursive: true });
  });
  const answer = PROTOCOLS[0]?.events({ text: 'here I am' }) ?? [];
  const mayEnd = Promise.withResolvers<void>();
  endpoint.script(
    async (response) => {
      await mayEnd.promise;
      await sending(...answer)(response);
    },
    sending(...answer),
  );
  await server.api.putAgent('claude', { model: { name: 'claude/claude-x' } });
  const start = async () => {
    const sessionId = await server.api.createSession('claude');
    return { sessionId, reader: server.api.turn(sessionId, 'hi') };
  };
  const first = await start();
  await expect.poll(() => endpoint.requests.length).toBe(1);
  const [second, third] = [await start(), await start()];
  await expect
    .poll(async () => (await fetch(`${server.server.url}/metrics`)).text())
    .toContain('everturn_model_calls_waiting{provider="claude"} 2');
  await server.api.send('POST', `/v1/agents/sessions/${second.sessionId}/cancel`, {});
  expect(await second.reader.end()).toMatchObject({ status: 'cancelled' });
  mayEnd.resolve();
  expect(await first.reader.end()).toMatchObject({ status: 'done', output: { content: 'here I am' } });
  expect(await third.reader.end()).toMatchObject({ status: 'done', output: { content: 'here I am' } });
  expect(endpoint.requests).toHaveLength(2);
});
