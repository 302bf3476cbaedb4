import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import type { BeginModelCall, HeadStart } from '../../src/live/head-starts.ts';
import { RedisHeadStarts } from '../../src/live/redis-head-starts.ts';
import { newId } from '../../src/log/ids.ts';
import { ModelError } from '../../src/models/model-error.ts';
import type { ModelChunk } from '../../src/models/provider.ts';
import { openRedis, type Redis } from '../../src/redis.ts';
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
  headStarts: RedisHeadStarts;
  redis: Redis;
  draining: AbortController;
  /** The turns whose model calls it has begun, and the signals of these. */
  begun: Map<string, AbortSignal>;
}

let api: Peer;
let workers: Peer[];
let prefix: string;
let model: (signal: AbortSignal) => AsyncIterable<ModelChunk> | Promise<AsyncIterable<ModelChunk>>;
beforeEach(async () => {
  prefix = `${newId('req')}:`;
  api = await peer();
  workers = [await peer(), await peer()];
  await Promise.all(workers.map(serve));
});
afterEach(async () => {
  server.goOn();
  for (const { redis } of [api, ...workers]) redis.close();
});

async function peer(): Promise<Peer> {
  const redis = await openRedis({ url: server.url, log });
  const headStarts = new RedisHeadStarts({ redis, prefix, log });
  return { headStarts, redis, draining: new AbortController(), begun: new Map() };
}

async function serve({ headStarts, draining, begun }: Peer): Promise<void> {
  const begin: BeginModelCall = (start, signal) => {
    begun.set(start.turnId, signal);
    return Promise.resolve(model(signal));
  };
  headStarts.serve(begin, draining.signal);
  const hears = async () => (await api.redis.commands.pubSubNumSub(`${prefix}head-starts`))[`${prefix}head-starts`];
  const before = workers.findIndex((worker) => worker.headStarts === headStarts);
  await expect.poll(hears).toBeGreaterThan(before);
}

function startOf(turnId = newId('turn')): HeadStart {
  const createdBy = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const createdAt = new Date().toISOString();
  return { turnId, sessionId: 's', previousTurnId: null, after: null, createdAt, createdBy, input: [], specHash: 'x' };
}

/** Offers a turn, and gives the worker that has begun its call and the other one. */
async function offered(start: HeadStart): Promise<{ owner: Peer; other: Peer }> {
  api.headStarts.offer(start);
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

async function all(chunks: AsyncIterable<ModelChunk> | undefined): Promise<ModelChunk[]> {
  const heard: ModelChunk[] = [];
  for await (const chunk of chunks ?? []) heard.push(chunk);
  return heard;
}

test.each(['the worker that has begun it', 'another worker'])(
  'an answer is begun once, and whole for %s',
  async (who) => {
    model = () => words(500);
    const start = startOf();
    const { owner, other } = await offered(start);
    const claimer = who === 'another worker' ? other : owner;
    const heard = await all(await claimer.headStarts.claim(start, never));
    expect(heard).toEqual(await all(words(500)));
    expect(workers.filter(({ begun }) => begun.has(start.turnId))).toHaveLength(1);
    // Nobody gets it a second time.
    for (const { headStarts } of workers) expect(await headStarts.claim(start, never)).toBeUndefined();
  },
);

test('an answer to another turn before is not taken from another worker either', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  expect(await other.headStarts.claim({ ...start, previousTurnId: 'turn_x' }, never)).toBeUndefined();
  expect(owner.begun.get(start.turnId)?.aborted).toBe(true);
});

test('who claims before the offer has come leaves nothing to begin', async () => {
  model = () => words(1);
  const start = startOf();
  expect(await workers[0]?.headStarts.claim(start, never)).toBeUndefined();
  api.headStarts.offer(start);
  const later = startOf();
  await offered(later);
  expect(workers.some(({ begun }) => begun.has(start.turnId))).toBe(false);
});

test('a turn that was withdrawn ends its call', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner } = await offered(start);
  api.headStarts.withdraw(start.turnId);
  await expect.poll(() => owner.begun.get(start.turnId)?.aborted).toBe(true);
});

test('what nobody can read costs no worker its connection', async () => {
  model = () => words(1);
  const errors: Error[] = [];
  for (const { redis } of workers) redis.subscriptions.on('error', (error: Error) => void errors.push(error));
  for (const nonsense of ['', 'null', '{"offer":']) await api.redis.commands.publish(`${prefix}head-starts`, nonsense);
  const start = startOf();
  const { owner } = await offered(start);
  expect(await all(await owner.headStarts.claim(start, never))).toEqual(await all(words(1)));
  expect(errors).toEqual([]);
});

test('whoever has claimed it can end it, and learns how it failed', async () => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  const caller = new AbortController();
  const chunks = await other.headStarts.claim(start, caller.signal);
  caller.abort();
  await all(chunks);
  await expect.poll(() => owner.begun.get(start.turnId)?.aborted).toBe(true);

  model = async function* () {
    yield { content: 'well' };
    throw new ModelError('rate_limited', 'too much', { retryAfterMs: 700 });
  };
  const next = startOf();
  const { other: claimer } = await offered(next);
  const failing = await claimer.headStarts.claim(next, never);
  await expect(all(failing)).rejects.toMatchObject({ failure: 'rate_limited', retryAfterMs: 700, message: 'too much' });
});

test.each(['stops', 'dies'])('a worker that %s breaks off what another has claimed', async (how) => {
  model = untilAborted;
  const start = startOf();
  const { owner, other } = await offered(start);
  const chunks = await other.headStarts.claim(start, never);
  if (how === 'stops') owner.draining.abort();
  else owner.redis.close();
  await expect(all(chunks)).rejects.toMatchObject({ failure: 'broken_stream' });
});

test('a worker that stops before the model has said a word lets whoever has claimed the answer ask for itself', async () => {
  model = () => new Promise(() => undefined);
  const start = startOf();
  const { owner, other } = await offered(start);
  const letters: string[] = [];
  await api.redis.subscriptions.pSubscribe(`${prefix}worker:*`, (letter) => void letters.push(letter));
  const chunks = other.headStarts.claim(start, never);
  await expect.poll(() => letters.join(), { timeout: 30_000 }).toContain('alive');
  owner.draining.abort();
  expect(await chunks).toBeUndefined();
  // It was told so: by silence it would know after five seconds.
  expect(letters.join()).toContain('lost');
});

test.each(['withdrawn', 'claimed'])(
  'a turn that is %s while its worker asks Redis whether it may begin is not begun',
  async (how) => {
    model = () => words(1);
    for (const { redis } of workers) redis.close();
    const proxy = await TcpProxy.start(new URL(server.url).host);
    onTestFinished(() => proxy.stop());
    const [{ commands, close }, direct] = [await openRedis({ url: `redis://${proxy.address}`, log }), await peer()];
    onTestFinished(close);
    const redis = { ...direct.redis, commands };
    const worker: Peer = { ...direct, redis, headStarts: new RedisHeadStarts({ redis, prefix, log }) };
    workers = [worker];
    await serve(worker);
    const notices: string[] = [];
    // Listeners are called in their order: what this one has heard, the worker has.
    await redis.subscriptions.subscribe(`${prefix}head-starts`, (notice) => void notices.push(notice));

    proxy.hold();
    const start = startOf();
    api.headStarts.offer(start);
    await expect.poll(() => notices.length, { interval: 5 }).toBe(1);
    let claim: Promise<unknown> = Promise.resolve(undefined);
    if (how === 'withdrawn') {
      api.headStarts.withdraw(start.turnId);
      await expect.poll(() => notices.length, { interval: 5 }).toBe(2);
    } else {
      claim = worker.headStarts.claim(start, never);
    }
    proxy.flow();
    expect(await claim).toBeUndefined();
    // Redis has answered in the order in which it was asked, so the next turn is begun after this one would have been.
    const next = startOf();
    api.headStarts.offer(next);
    await expect.poll(() => worker.begun.has(next.turnId)).toBe(true);
    expect(worker.begun.has(start.turnId)).toBe(false);
  },
);

test('while Redis hangs or is away, a claim takes no time and an offer nothing at all', async () => {
  const [worker] = workers;
  let isGivenUp = false;
  worker?.redis.commands.once('error', () => (isGivenUp = true));
  server.hang();
  api.headStarts.offer(startOf());
  expect(await worker?.headStarts.claim(startOf(), never)).toBeUndefined();
  // Half a second, however long that is on a busy machine; a Redis that hangs is given up after five.
  expect(isGivenUp).toBe(false);
});
