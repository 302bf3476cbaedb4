import { pino } from 'pino';
import { expect, test } from 'vitest';
import { modelRequest } from '../../test/support/model-request.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { localAllowance, type AllowedCall } from './allowance.ts';
import { limited } from './limited-model.ts';
import type { ModelChunk, ModelRequest } from './provider.ts';

const NONE = { concurrency: Infinity, requestsPerMinute: Infinity, tokensPerMinute: Infinity };

const call = (tokens: number): AllowedCall => ({ id: 'c', tokens });

test('a rate of requests', async () => {
  let now = 0;
  const allowance = localAllowance({ ...NONE, requestsPerMinute: 2 }, () => now);
  expect(await allowance.take(call(0))).toBe(0);
  expect(await allowance.take(call(0))).toBe(0);
  expect(await allowance.take(call(0))).toBe(30_000);
  now = 29_999;
  expect(await allowance.take(call(0))).toBeGreaterThan(0);
  now = 30_000;
  expect(await allowance.take(call(0))).toBe(0);
  // A call that was not made is returned.
  await allowance.giveBack(call(0));
  expect(await allowance.take(call(0))).toBe(0);
});

test('a rate of tokens is corrected to what the calls used', async () => {
  let now = 0;
  const allowance = localAllowance({ ...NONE, tokensPerMinute: 6_000 }, () => now);
  expect(await allowance.take(call(1_000))).toBe(0);
  await allowance.giveBack(call(1_000), 6_000);
  expect(await allowance.take(call(100))).toBe(1_000);
  now = 1_000;
  expect(await allowance.take(call(100))).toBe(0);
  // A call that is larger than the limit waits until the bucket is full.
  expect(await allowance.take(call(1_000_000))).toBe(60_000);
});

const request = modelRequest();

/** A provider with one call at a time, and its calls in the order in which they reach it. */
function oneAtATime() {
  const reached: { name: string; end: () => void }[] = [];
  const metrics = new Metrics();
  async function* answer({ model: name }: ModelRequest): AsyncGenerator<ModelChunk> {
    const ended = Promise.withResolvers<void>();
    reached.push({ name, end: () => ended.resolve() });
    await ended.promise;
    yield { content: name, finishReason: 'stop' };
  }
  const allowance = localAllowance({ ...NONE, concurrency: 1 });
  const stream = limited(answer, { allowance, name: 'p', log: pino({ level: 'silent' }), metrics });
  const start = (name: string, signal = new AbortController().signal) =>
    Array.fromAsync(stream({ ...request, model: name }, signal));
  const waiting = async () => (await metrics.modelCallsWaiting.get()).values[0]?.value;
  return { reached, start, waiting };
}

test('calls wait in their order until others have ended', async () => {
  const { reached, start, waiting } = oneAtATime();
  const calls = ['a', 'b', 'c'].map((name) => start(name));
  await expect.poll(() => reached.length).toBe(1);
  expect(await waiting()).toBe(2);
  for (const [index, name] of ['a', 'b', 'c'].entries()) {
    await expect.poll(() => reached[index]?.name).toBe(name);
    expect(reached).toHaveLength(index + 1);
    reached[index]?.end();
    expect(await calls[index]).toContainEqual({ content: name, finishReason: 'stop' });
  }
  expect(await waiting()).toBe(0);
});

test('a call that is aborted while it waits leaves the queue, and lets none overtake', async () => {
  const { reached, start, waiting } = oneAtATime();
  const first = start('a');
  await expect.poll(() => reached.length).toBe(1);
  const [middle, head] = [new AbortController(), new AbortController()];
  const [b, c, d, e] = [start('b'), start('c', middle.signal), start('d', head.signal), start('e')];
  await expect.poll(waiting).toBe(4);
  middle.abort();
  expect(await c).toEqual([]);
  reached[0]?.end();
  await first;
  await expect.poll(() => reached[1]?.name).toBe('b');
  head.abort();
  expect(await d).toEqual([]);
  expect(reached).toHaveLength(2);
  reached[1]?.end();
  await b;
  await expect.poll(() => reached[2]?.name).toBe('e');
  reached[2]?.end();
  await e;
});
