import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import type { SpeculativeCall } from '../../src/engine/speculation.ts';
import type { ClaimedCall, StartSpeculativeCall } from '../../src/speculation/speculative-calls.ts';
import { RedisSpeculativeCalls } from '../../src/speculation/redis-speculative-calls.ts';
import { begunCall } from '../support/begun-call.ts';
import { BusTap } from '../support/bus-tap.ts';
import { NO_SUB_AGENTS } from '../support/no-sub-agents.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { NO_USAGE } from '../../src/core/records.ts';
import { newId } from '../../src/engine/new-id.ts';
import { ModelError } from '../../src/models/model-error.ts';
import type { ModelChunk } from '../../src/models/provider.ts';
import { openRedis, type Redis } from '../../src/lib/redis.ts';
import { TestRedis } from '../support/redis.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';

const log = pino({ level: 'silent' });
const never = new AbortController().signal;

let server: TestRedis;
beforeAll(async () => {
  server = await TestRedis.start();
});
afterAll(() => server.down());

/** A process: an API, and a worker once it serves. */
interface Peer {
  speculativeCalls: RedisSpeculativeCalls;
  redis: Redis;
  draining: AbortController;
  /** The turns whose model calls it has started, and the signals of these calls. */
  begun: Map<string, AbortSignal>;
  /** Where it shows the messages of its calls. */
  bus: InProcessBus;
}

let api: Peer;
let workers: Peer[];
let prefix: string;
let unreported: number;
const onUnreported = (): void => void unreported++;
let model: (signal: AbortSignal) => AsyncIterable<ModelChunk> | Promise<AsyncIterable<ModelChunk>>;
beforeEach(async () => {
  unreported = 0;
  prefix = `${newId('req')}:`;
  api = await peer();
  workers = [await peer(), await peer()];
  for (const worker of workers) await serve(worker);
});
afterEach(async () => {
  server.goOn();
  for (const { redis } of [api, ...workers]) redis.close();
});

async function peer(): Promise<Peer> {
  const redis = await openRedis({ url: server.url, log });
  const speculativeCalls = new RedisSpeculativeCalls({ redis, prefix, log });
  return { speculativeCalls, redis, draining: new AbortController(), begun: new Map(), bus: new InProcessBus() };
}

async function serve({ speculativeCalls, draining, begun, bus }: Peer): Promise<void> {
  const begin: StartSpeculativeCall = async (start, signal) => {
    begun.set(start.turnId, signal);
    return begunCall(start, await model(signal), { bus });
  };
  const hearing = async () => (await api.redis.commands.pubSubChannels(`${prefix}offers:*`)).length;
  const before = await hearing();
  speculativeCalls.serve(begin, draining.signal);
  await expect.poll(hearing).toBeGreaterThan(before);
}

function startOf(turnId = newId('turn')): SpeculativeCall {
  const createdBy = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const createdAt = new Date().toISOString();
  const place = {
    sessionId: 's',
    owner: { subjectId: 'ann', draftRoles: null },
    previousTurnId: null,
    after: null,
    sequence: 1,
  };
  return { turnId, ...place, createdAt, createdBy, input: [], specHash: 'x' };
}

/** Offers a turn, and returns the worker that has started its call and the other one. */
async function offered(start: SpeculativeCall): Promise<{ owner: Peer; other: Peer }> {
  api.speculativeCalls.offer(start);
  const isOwner = ({ begun }: Peer): boolean => begun.has(start.turnId);
  await expect.poll(() => workers.some(isOwner)).toBe(true);
  const [one, two] = workers;
  if (!one || !two) throw new Error('there are two workers');
  return isOwner(one) ? { owner: one, other: two } : { owner: two, other: one };
}

async function* words(count: number): AsyncGenerator<ModelChunk> {
  for (let i = 0; i < count; i++) yield { content: `${i} ` };
  yield { finishReason: 'stop' };
}

async function* untilAborted(signal: AbortSignal): AsyncGenerator<ModelChunk> {
  yield { content: 'and then' };
  await new Promise((resolve) => void signal.addEventListener('abort', resolve));
}

/** Claims a call as an activity does, on a worker that has not begun it. */
async function claimElsewhere({ speculativeCalls }: Peer, call: ClaimedCall, signal = never) {
  expect(await speculativeCalls.claim(call, signal, onUnreported)).toBeUndefined();
  return speculativeCalls.claimElsewhere(call, signal, onUnreported);
}

/** The message of a call that is claimed on the worker that has begun it. */
async function claimHere({ speculativeCalls }: Peer, call: ClaimedCall): Promise<string | undefined> {
  const claimed = await speculativeCalls.claim(call, never, onUnreported);
  await claimed?.ended;
  const [record] = (await claimed?.message.records('answered', NO_USAGE, NO_SUB_AGENTS)) ?? [];
  return record?.kind === 'model.message' ? record.content : undefined;
}

async function all(chunks: AsyncIterable<ModelChunk> | undefined): Promise<ModelChunk[]> {
  const heard: ModelChunk[] = [];
  for await (const chunk of chunks ?? []) heard.push(chunk);
  return heard;
}

test.each(['the worker that has begun it', 'another worker'])(
  'a call is started once, and its whole response goes to %s',
  async (who) => {
    model = () => words(500);
    const start = startOf();
    const { owner, other } = await offered(start);
    const expected = await all(words(500));
    if (who === 'another worker') expect(await all(await claimElsewhere(other, start))).toEqual(expected);
    else expect(await claimHere(owner, start)).toBe(expected.map(({ content = '' }) => content).join(''));
    expect(workers.filter(({ begun }) => begun.has(start.turnId))).toHaveLength(1);
    // It cannot be claimed a second time.
    for (const worker of workers) expect(await claimElsewhere(worker, start)).toBeUndefined();
  },
);

test('a response for another previous turn is not claimed from another worker either', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  expect(await claimElsewhere(other, { ...start, previousTurnId: 'turn_x' })).toBeUndefined();
  expect(owner.begun.get(start.turnId)?.aborted).toBe(true);
  expect(unreported).toBe(1);
});

test('a claim before the offer leaves nothing to start', async () => {
  model = () => words(1);
  const start = startOf();
  expect(workers[0] && (await claimElsewhere(workers[0], start))).toBeUndefined();
  api.speculativeCalls.offer(start);
  const later = startOf();
  await offered(later);
  expect(workers.some(({ begun }) => begun.has(start.turnId))).toBe(false);
});

test('a turn that was withdrawn ends its call', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner } = await offered(start);
  api.speculativeCalls.withdraw(start.turnId);
  await expect.poll(() => owner.begun.get(start.turnId)?.aborted).toBe(true);
});

test.each(['the worker that has begun it', 'another worker'])(
  'an accepted turn is shown by the worker that has begun its call, until %s claims it',
  async (who) => {
    const more = Promise.withResolvers<void>();
    model = async function* () {
      yield { content: 'first ' };
      await more.promise;
      yield { content: 'second' };
    };
    const start = startOf();
    const { owner, other } = await offered(start);
    const taps = [owner, other].map(({ bus }) => new BusTap(bus, start.turnId));
    const shown = () => taps.map(({ frames }) => frames.map(({ attempt, delta }) => `${attempt}: ${delta.content}`));
    api.speculativeCalls.accept({ turnId: start.turnId, previousTurnId: null, sequence: 1 });
    await expect.poll(shown).toEqual([['0: first '], []]);
    if (who === 'another worker') {
      const chunks = await claimElsewhere(other, start);
      more.resolve();
      expect(await all(chunks)).toEqual([{ content: 'first ' }, { content: 'second' }]);
      expect(shown()).toEqual([['0: first '], []]);
    } else {
      more.resolve();
      expect(await claimHere(owner, start)).toBe('first second');
      expect(shown()).toEqual([['0: first ', '0: second'], []]);
    }
  },
);

test('a turn that is accepted at another place in its session shows nothing, and ends its call', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner } = await offered(start);
  const tap = new BusTap(owner.bus, start.turnId);
  api.speculativeCalls.accept({ turnId: start.turnId, previousTurnId: 'turn_x', sequence: 2 });
  await expect.poll(() => owner.begun.get(start.turnId)?.aborted).toBe(true);
  expect(tap.frames).toEqual([]);
});

test('an unreadable message costs no worker its connection', async () => {
  model = () => words(1);
  const errors: Error[] = [];
  for (const { redis } of workers) redis.subscriptions.on('error', (error: Error) => void errors.push(error));
  for (const nonsense of ['', 'null', '{"offer":']) {
    for (const channel of await api.redis.commands.pubSubChannels(`${prefix}offers:*`)) {
      await api.redis.commands.publish(channel, nonsense);
    }
  }
  const start = startOf();
  const { owner } = await offered(start);
  expect(await claimHere(owner, start)).toBe('0 ');
  expect(errors).toEqual([]);
});

test('the claimer can end the call, and is told how it failed', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  const caller = new AbortController();
  const chunks = await claimElsewhere(other, start, caller.signal);
  caller.abort();
  await all(chunks);
  await expect.poll(() => owner.begun.get(start.turnId)?.aborted).toBe(true);

  model = async function* () {
    yield { content: 'well' };
    throw new ModelError('rate_limited', 'too much', { retryAfterMs: 700 });
  };
  const next = startOf();
  const { other: claimer } = await offered(next);
  const failing = await claimElsewhere(claimer, next);
  await expect(all(failing)).rejects.toMatchObject({ failure: 'rate_limited', retryAfterMs: 700, message: 'too much' });
});

test.each(['stops', 'dies'])('when a worker %s, the call that another one has claimed from it ends', async (how) => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  const chunks = await claimElsewhere(other, start);
  if (how === 'stops') owner.draining.abort();
  else owner.redis.close();
  await expect(all(chunks)).rejects.toMatchObject({ failure: 'broken_stream' });
});

test("when a worker stops before the model's first word, the claimer makes its own call", async () => {
  model = () => new Promise(() => undefined);
  const start = startOf();
  const { owner, other } = await offered(start);
  const letters: string[] = [];
  await api.redis.subscriptions.pSubscribe(`${prefix}worker:*`, (letter) => void letters.push(letter));
  const chunks = claimElsewhere(other, start);
  await expect.poll(() => letters.join(), { timeout: 30_000 }).toContain('alive');
  owner.draining.abort();
  expect(await chunks).toBeUndefined();
  // It was notified: without a message it would know after five seconds.
  expect(letters.join()).toContain('lost');
});

test('a worker that has stopped before its response is claimed is not waited for', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  owner.redis.close();
  const hears = async () => (await api.redis.commands.pubSubChannels(`${prefix}worker:*`)).length;
  await expect.poll(hears).toBe(1);
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  // Its silence would be noticed, but no time passes here.
  expect(await claimElsewhere(other, start)).toBeUndefined();
  expect(unreported).toBe(1);
});

test('an activity that calls the model itself ends the call that another worker has started, and counts it', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  other.speculativeCalls.forgo(start.turnId, onUnreported);
  await expect.poll(() => owner.begun.get(start.turnId)?.aborted).toBe(true);
  await expect.poll(() => unreported).toBe(1);
  expect(await owner.speculativeCalls.claim(start, never, () => undefined)).toBeUndefined();

  // A late offer is not taken up.
  const next = startOf();
  other.speculativeCalls.forgo(next.turnId, onUnreported);
  await expect.poll(() => api.redis.commands.exists(`${prefix}speculative-call:${next.turnId}`)).toBe(1);
  api.speculativeCalls.offer(next);
  await offered(startOf());
  expect(workers.some(({ begun }) => begun.has(next.turnId))).toBe(false);
  expect(unreported).toBe(1);
});

test('a claim that Redis answers too late gives nothing, and ends the started call when the response arrives', async () => {
  model = untilAborted;
  const proxy = await TcpProxy.start(new URL(server.url).host);
  onTestFinished(() => proxy.stop());
  const redis = await openRedis({ url: `redis://${proxy.address}`, log });
  onTestFinished(() => redis.close());
  const speculativeCalls = new RedisSpeculativeCalls({ redis, prefix, log });
  const start = startOf();
  const { owner } = await offered(start);
  proxy.hold();
  expect(await speculativeCalls.claimElsewhere(start, never, onUnreported)).toBeUndefined();
  expect(unreported).toBe(0);
  proxy.flow();
  await expect.poll(() => owner.begun.get(start.turnId)?.aborted).toBe(true);
  expect(unreported).toBe(1);
});

test('a turn that is withdrawn while its API asks Redis for workers is not started', async () => {
  model = () => words(1);
  const proxy = await TcpProxy.start(new URL(server.url).host);
  onTestFinished(() => proxy.stop());
  const redis = await openRedis({ url: `redis://${proxy.address}`, log });
  onTestFinished(() => redis.close());
  const speculativeCalls = new RedisSpeculativeCalls({ redis, prefix, log });
  proxy.hold();
  const start = startOf();
  speculativeCalls.offer(start);
  speculativeCalls.withdraw(start.turnId);
  const next = startOf();
  speculativeCalls.offer(next);
  proxy.flow();
  // Redis responds in the order of the requests.
  await expect.poll(() => workers.some(({ begun }) => begun.has(next.turnId))).toBe(true);
  expect(workers.some(({ begun }) => begun.has(start.turnId))).toBe(false);
});

test('the turns of a session go to one worker, those of many sessions to all; at once to another when it is gone', async () => {
  model = () => words(1);
  const ofSession = (sessionId: string) => ({ ...startOf(), sessionId });
  const { owner, other } = await offered(ofSession('a'));
  for (let i = 0; i < 3; i++) await offered(ofSession('a'));
  expect(owner.begun.size).toBe(4);
  for (let i = 0; i < 32; i++) await offered(ofSession(`b${i}`));
  expect(Math.min(owner.begun.size - 4, other.begun.size)).toBeGreaterThan(0);

  owner.redis.close();
  const begun = other.begun.size;
  for (let i = 0; i < 2; i++) await offered(ofSession('a'));
  expect(other.begun.size).toBe(begun + 2);
  const third = await peer();
  onTestFinished(() => third.redis.close());
  await serve(third);
  other.redis.close();
  const start = ofSession('a');
  api.speculativeCalls.offer(start);
  await expect.poll(() => third.begun.has(start.turnId)).toBe(true);
});

test('while Redis hangs or is unavailable, a claim takes no time and an offer none at all', async () => {
  const [worker] = workers;
  let isGivenUp = false;
  worker?.redis.commands.once('error', () => (isGivenUp = true));
  server.hang();
  api.speculativeCalls.offer(startOf());
  expect(await worker?.speculativeCalls.claimElsewhere(startOf(), never, onUnreported)).toBeUndefined();
  // Half a second, also on a busy machine; a Redis that hangs is given up after five.
  expect(isGivenUp).toBe(false);
});
