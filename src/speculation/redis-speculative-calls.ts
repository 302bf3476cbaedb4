import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { sha256 } from '../lib/hash.ts';
import { withTimeout, IdleTimer } from '../lib/timeout.ts';
import { NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import { ModelError, type ModelFailure } from '../models/model-error.ts';
import type { ModelChunk } from '../models/provider.ts';
import type { Redis } from '../lib/redis.ts';
import type { SpeculativeCall } from '../engine/speculation.ts';
import {
  InProcessSpeculativeCalls,
  type StartSpeculativeCall,
  type ClaimedCall,
  type SpeculativeCallOutcome,
  type SpeculativeCalls,
  type OnUnreported,
} from './speculative-calls.ts';

/** From an API: an offer to one worker, a withdrawal to all. */
type OfferMessage = { offer: SpeculativeCall } | { withdraw: string };

/** From one worker to another, about an answer that one has begun and the other has claimed. */
type ClaimMessage = { claim: string } & (
  | { from: string; call: ClaimedCall }
  | { drop: true }
  | { n: number; part: Part }
);

/**
 * `begun`: chunks will come. `none`: there is no such answer, though the model may have been asked. `lost`: what comes
 * next is not known.
 */
type Part =
  | { type: 'begun' | 'alive' | 'end' | 'lost' }
  | { type: 'none'; wasAsked: boolean }
  | { type: 'chunk'; chunk: ModelChunk }
  | { type: 'failed'; failure: ModelFailure; message: string; retryAfterMs: number | undefined };

/** Whoever is to have a speculative call has it by then, or never. */
const REMEMBERED_SECONDS = 60;

/** How old an API's list of workers may be, when it has one. */
const FOUND_MS = 1_000;

/**
 * Makes a worker the owner of a speculative call and tells it so, unless an activity has asked for the answer already. Gives
 * how many have heard it: none if the worker is gone, and then nobody owns it.
 * KEYS: the owner's. ARGV: the worker, its channel, the notice, for how many seconds to remember it.
 */
const OFFER = `
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[4]) then return -1 end
local heard = redis.call('PUBLISH', ARGV[2], ARGV[3])
if heard == 0 then redis.call('DEL', KEYS[1]) end
return heard`;

/** What Redis takes longer for is not worth waiting for: the model can be asked meanwhile. */
const REDIS_MS = 500;

const ALIVE_MS = 1_000;
/** A worker that says nothing for so long is gone. */
const SILENCE_MS = 5_000;

interface ClaimAtOther {
  owner: string;
  call: ClaimedCall;
  signal: AbortSignal;
  onUnreported: OnUnreported;
}

interface RedisSpeculativeCallsOptions {
  redis: Redis;
  prefix: string;
  log: Logger;
  /** Of those that were begun here. */
  onEnd?: (outcome: SpeculativeCallOutcome) => void;
  /** For what is said: by default it goes as it is. */
  cipher?: Cipher;
}

/**
 * The speculative calls of an Everturn whose processes run apart. An offer goes to one of the workers, and Redis remembers
 * to which. The activity may run on another one: then that one gets the answer by Redis, chunk by chunk. Whatever goes
 * wrong on the way, the activity asks the model itself.
 */
export class RedisSpeculativeCalls implements SpeculativeCalls {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #log: Logger;
  readonly #cipher: Cipher;
  readonly #local: InProcessSpeculativeCalls;
  /** This process, among the workers. */
  readonly #name = randomUUID();
  /** Turns for which a worker is being sought; not those that are over meanwhile. */
  readonly #offering = new Set<string>();
  /** Workers that may begin calls, by their names, as of `#foundAt`. */
  #workers: string[] = [];
  #foundAt = 0;
  /** Claims of this worker at others, and of others here. */
  readonly #asked = new Map<string, (letter: { n: number; part: Part }) => void>();
  readonly #served = new Map<string, AbortController>();

  constructor({ redis, prefix, log, onEnd, cipher = NO_ENCRYPTION }: RedisSpeculativeCallsOptions) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#log = log;
    this.#cipher = cipher;
    this.#local = new InProcessSpeculativeCalls(onEnd);
  }

  serve(begin: StartSpeculativeCall, stop: AbortSignal): void {
    this.#local.serve(begin, stop);
    const subscribe = (): void => {
      this.#subscribe(this.#withdrawals, this.#onNotice);
      this.#subscribe(this.#offers(this.#name), this.#onNotice);
      this.#subscribe(this.#letters(this.#name), this.#onLetter);
    };
    this.#redis.subscriptions.on('ready', subscribe);
    if (this.#redis.subscriptions.isReady) subscribe();
    stop.addEventListener('abort', () => {
      this.#redis.subscriptions.off('ready', subscribe);
      const notices = [this.#withdrawals, this.#offers(this.#name)];
      this.#redis.subscriptions.unsubscribe(notices, this.#onNotice).catch(() => undefined);
      for (const dropped of this.#served.values()) dropped.abort();
    });
  }

  offer(start: SpeculativeCall): void {
    this.#offering.add(start.turnId);
    this.#offerToOne(start).catch((error: unknown) => {
      this.#log.debug({ turnId: start.turnId, err: error }, 'a turn got no speculative call');
    });
  }

  withdraw(turnId: string): void {
    this.#offering.delete(turnId);
    void this.#publish(this.#withdrawals, { withdraw: turnId });
  }

  async claim(
    call: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<AsyncIterable<ModelChunk> | undefined> {
    const own = await this.#local.claim(call, signal, onUnreported);
    if (own) return own;
    const taking = this.#takeFromOther(call.turnId);
    const owner = await orUndefinedAfter(taking);
    if (typeof owner === 'string') return this.#claimFrom({ owner, call, signal, onUnreported });
    // What Redis says too late is not waited for, but ended.
    if (owner === undefined) this.#endWhenTaken(call.turnId, taking, onUnreported);
    return undefined;
  }

  forgo(turnId: string, onUnreported: OnUnreported): void {
    this.#local.forgo(turnId, onUnreported);
    this.#endWhenTaken(turnId, this.#takeFromOther(turnId), onUnreported);
  }

  /**
   * From here on no other worker can claim it, and one that hears of the offer only now makes no call. Gives the other
   * worker that has heard of it before, or null.
   */
  async #takeFromOther(turnId: string): Promise<string | null> {
    const expiration = { type: 'EX', value: REMEMBERED_SECONDS } as const;
    const owner = await this.#redis.commands.set(this.#key(turnId), 'claimed', { expiration, GET: true });
    return owner === 'claimed' || owner === this.#name ? null : owner;
  }

  #endWhenTaken(turnId: string, taking: Promise<string | null>, onUnreported: OnUnreported): void {
    const end = (owner: string | null): void => {
      if (owner === null) return;
      this.withdraw(turnId);
      onUnreported();
    };
    // Without Redis no other worker has heard of it.
    taking.then(end).catch(() => undefined);
  }

  async #offerToOne(start: SpeculativeCall): Promise<void> {
    try {
      if (!(await this.#offerToFirstWorker(start))) {
        await this.#findWorkers();
        await this.#offerToFirstWorker(start);
      } else if (Date.now() - this.#foundAt > FOUND_MS) {
        await this.#findWorkers();
      }
    } finally {
      this.#offering.delete(start.turnId);
    }
  }

  /**
   * Offers to one worker after the other, until one has heard it. The turns of a session go to the same one, which has
   * its conversation in memory.
   */
  async #offerToFirstWorker(start: SpeculativeCall): Promise<boolean> {
    for (const worker of rankWorkers(start.sessionId, this.#workers)) {
      if (!this.#offering.has(start.turnId)) return true;
      const channel = this.#offers(worker);
      const notice = this.#sealed(channel, { offer: start });
      const heard = await this.#redis.commands.eval(OFFER, {
        keys: [this.#key(start.turnId)],
        arguments: [worker, channel, notice, String(REMEMBERED_SECONDS)],
      });
      if (heard !== 0) return true;
    }
    return false;
  }

  async #findWorkers(): Promise<void> {
    this.#foundAt = Date.now();
    const everything = this.#offers('').replaceAll(/[*?[\]\\]/g, String.raw`\$&`);
    const channels = await this.#redis.commands.pubSubChannels(`${everything}*`);
    this.#workers = channels.map((channel) => channel.slice(this.#offers('').length));
  }

  async #claimFrom({
    owner,
    call,
    signal,
    onUnreported,
  }: ClaimAtOther): Promise<AsyncIterable<ModelChunk> | undefined> {
    const claim = randomUUID();
    const letters = this.#letters(owner);
    const parts = this.#partsOf(claim, signal, () => void this.#publish(letters, { claim, drop: true }));
    const first = parts.next();
    // A worker whose connection to Redis is gone would only be missed after `SILENCE_MS`.
    void this.#publish(letters, { claim, from: this.#name, call }).then((heard) => {
      if (heard === 0) this.#asked.get(claim)?.({ n: 0, part: { type: 'lost' } });
    });
    const { value: part } = await first;
    if (part?.type === 'begun') return chunksOf(parts);
    await parts.return(undefined);
    if (part?.type === 'lost' || (part?.type === 'none' && part.wasAsked)) onUnreported();
    return undefined;
  }

  /** What another worker sends of an answer, in its order; ends with the first part that nothing follows. */
  async *#partsOf(claim: string, signal: AbortSignal, drop: () => void): AsyncGenerator<Part, void> {
    const inbox: Part[] = [];
    let wake = Promise.withResolvers<void>();
    const put = (part: Part): void => {
      inbox.push(part);
      wake.resolve();
    };
    let expected = 0;
    const silence = new IdleTimer(SILENCE_MS);
    silence.signal.addEventListener('abort', () => put({ type: 'lost' }));
    this.#asked.set(claim, ({ n, part }) => {
      silence.reset();
      put(n === expected++ ? part : { type: 'lost' });
    });
    const onAbort = (): void => put({ type: 'end' });
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    let isWhole = false;
    try {
      for (;;) {
        await wake.promise;
        wake = Promise.withResolvers<void>();
        for (let part = inbox.shift(); part; part = inbox.shift()) {
          isWhole = part.type === 'none' || (part.type === 'end' && !signal.aborted) || part.type === 'failed';
          if (part.type !== 'alive') yield part;
        }
      }
    } finally {
      silence.stop();
      signal.removeEventListener('abort', onAbort);
      this.#asked.delete(claim);
      if (!isWhole) drop();
    }
  }

  readonly #onNotice = this.#reading((notice: OfferMessage) => {
    if ('withdraw' in notice) this.#local.withdraw(notice.withdraw);
    else this.#local.offer(notice.offer);
  });

  readonly #onLetter = this.#reading((letter: ClaimMessage) => {
    if ('call' in letter) void this.#serveClaim(letter);
    else if ('drop' in letter) this.#served.get(letter.claim)?.abort();
    else this.#asked.get(letter.claim)?.(letter);
  });

  #reading(handle: (message: never) => void): (text: string, channel: string) => void {
    return (text, channel) => {
      try {
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by another process of ours
        handle(JSON.parse(this.#cipher.openText(text, channel)) as never);
      } catch (error) {
        // Thrown at the client it would cost the connection.
        this.#log.error({ err: error }, 'a message about speculative calls could not be used');
      }
    };
  }

  /** Sends an answer to the worker that has claimed it. */
  async #serveClaim({ claim, from, call }: Extract<ClaimMessage, { call: unknown }>): Promise<void> {
    const dropped = new AbortController();
    this.#served.set(claim, dropped);
    let n = 0;
    const send = (part: Part): void => void this.#publish(this.#letters(from), { claim, n: n++, part });
    const alive = setInterval(() => send({ type: 'alive' }), ALIVE_MS);
    try {
      let wasAsked = false;
      const chunks = await this.#local.claim(call, dropped.signal, () => (wasAsked = true));
      send(chunks ? { type: 'begun' } : { type: 'none', wasAsked });
      for await (const chunk of chunks ?? []) send({ type: 'chunk', chunk });
      // One that was ended here is not the whole of it.
      if (chunks) send({ type: dropped.signal.aborted ? 'lost' : 'end' });
    } catch (error) {
      send(dropped.signal.aborted ? { type: 'lost' } : failed(error));
    } finally {
      clearInterval(alive);
      this.#served.delete(claim);
    }
  }

  get #withdrawals(): string {
    return `${this.#prefix}withdrawals`;
  }

  #offers(worker: string): string {
    return `${this.#prefix}offers:${worker}`;
  }

  #letters(worker: string): string {
    return `${this.#prefix}worker:${worker}`;
  }

  #key(turnId: string): string {
    return `${this.#prefix}speculative-call:${turnId}`;
  }

  /** Gives how many have heard it. */
  #publish(channel: string, message: OfferMessage | ClaimMessage): Promise<number> {
    return this.#redis.commands.publish(channel, this.#sealed(channel, message)).catch(() => 0);
  }

  #sealed(channel: string, message: OfferMessage | ClaimMessage): string {
    return this.#cipher.sealText(JSON.stringify(message), channel);
  }

  #subscribe(channel: string, listener: (text: string, channel: string) => void): void {
    // If it fails, Redis is away: this is done again when it is back.
    this.#redis.subscriptions.subscribe(channel, listener).catch((error: unknown) => {
      this.#log.debug({ err: error, channel }, 'no speculative calls without Redis');
    });
  }
}

/** The chunks of an answer that another worker sends. @throws ModelError as the model's failure, or if parts are missing */
async function* chunksOf(parts: AsyncIterable<Part>): AsyncGenerator<ModelChunk> {
  for await (const part of parts) {
    if (part.type === 'chunk') yield part.chunk;
    else if (part.type === 'failed') throw new ModelError(part.failure, part.message, part);
    else if (part.type === 'lost')
      throw new ModelError('broken_stream', 'an answer that was begun on another worker broke off');
    else return;
  }
}

/** Always the same order for a session, however its workers come and go. */
function rankWorkers(sessionId: string, workers: string[]): string[] {
  const ranks = new Map(workers.map((worker) => [worker, sha256(`${sessionId}/${worker}`)]));
  return workers.toSorted((a, b) => ((ranks.get(a) ?? '') < (ranks.get(b) ?? '') ? -1 : 1));
}

function failed(error: unknown): Part {
  const { failure, message, retryAfterMs } =
    error instanceof ModelError ? error : new ModelError('overloaded', `internal error: ${String(error)}`);
  return { type: 'failed', failure, message, retryAfterMs };
}

/** What Redis answers; undefined if it is away or takes too long. */
function orUndefinedAfter<T>(answer: Promise<T>): Promise<T | undefined> {
  return withTimeout(REDIS_MS, answer).catch(() => undefined);
}
