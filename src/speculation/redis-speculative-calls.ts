import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { onAbort } from '../lib/abort.ts';
import { sha256 } from '../lib/hash.ts';
import { withTimeout, IdleTimer } from '../lib/timeout.ts';
import { NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import { ModelError, type ModelErrorDetails, type ModelFailure } from '../models/model-error.ts';
import type { BudgetReport } from '../core/budget.ts';
import { BudgetReached } from '../engine/shared-budgets.ts';
import type { ModelChunk } from '../models/provider.ts';
import type { SpeculativeCallOutcome } from '../telemetry/metrics.ts';
import type { TurnAccepted } from '../core/session.ts';
import type { Redis } from '../lib/redis.ts';
import type { SpeculativeCall } from '../engine/speculation.ts';
import {
  InProcessSpeculativeCalls,
  type StartSpeculativeCall,
  type ClaimedCall,
  type ClaimedMessage,
  type SpeculativeCalls,
  type OnUnreported,
} from './speculative-calls.ts';

/** Sent by an API: an offer, and its acceptance, to one worker, or a withdrawal to all. */
type OfferMessage = { offer: SpeculativeCall } | { accept: TurnAccepted } | { withdraw: string };

/** Sent between two workers, about an answer that one has started and the other has claimed. */
type ClaimMessage = { claim: string } & (
  | { from: string; call: ClaimedCall }
  | { drop: true }
  | { n: number; part: Part }
);

/**
 * `begun`: chunks follow. `none`: there is no such answer, although the model may have been called. `lost`: parts are
 * missing.
 */
type Part =
  | { type: 'begun' | 'alive' | 'end' | 'lost' }
  | { type: 'none'; isSent: boolean }
  | { type: 'chunk'; chunk: ModelChunk }
  | { type: 'budget_reached'; report: BudgetReport }
  | ({ type: 'failed'; failure: ModelFailure; message: string } & ModelErrorDetails);

/** A call is offered, claimed and withdrawn within this time. */
const REMEMBERED_SECONDS = 60;

/** The maximum age of an API's list of workers; an older one is refreshed. */
const WORKERS_MAX_AGE_MS = 1_000;

/**
 * Makes a worker the owner of a speculative call and sends it the offer, unless an activity has claimed the call. Returns
 * the number of receivers, 0 if the worker is gone and the call has no owner, or -1 if it was claimed or offered before.
 * KEYS: the owner's key. ARGV: the worker, its channel, the message, the key's lifetime in seconds.
 */
const OFFER = `
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[4]) then return -1 end
local receivers = redis.call('PUBLISH', ARGV[2], ARGV[3])
if receivers == 0 then redis.call('DEL', KEYS[1]) end
return receivers`;

/** Past this the activity does not wait for Redis, and calls the model itself. */
const REDIS_MS = 500;

const ALIVE_MS = 1_000;
/** A worker that sends nothing for this long is taken for dead. */
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
  /** Called with the outcome of each call that this process started. */
  onEnd?: (outcome: SpeculativeCallOutcome) => void;
  /** Encrypts the messages; by default they are not encrypted. */
  cipher?: Cipher;
}

/**
 * Speculative calls between separate API and worker processes. An offer is sent to one worker, which Redis stores as the
 * call's owner, and so is the turn's acceptance. If the activity runs on another worker, it gets the answer over Redis,
 * chunk by chunk. If any step fails, the activity calls the model itself.
 */
export class RedisSpeculativeCalls implements SpeculativeCalls {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #log: Logger;
  readonly #cipher: Cipher;
  readonly #local: InProcessSpeculativeCalls;
  /** The name of this process among the workers. */
  readonly #name = randomUUID();
  /** The offers that were neither accepted nor withdrawn, and the worker that each was sent to, if there is one. */
  readonly #offered = new Map<string, Promise<string | undefined>>();
  /** The names of the workers that accept offers, as of `#foundAt`. */
  #workers: string[] = [];
  #foundAt = 0;
  /** Claims of this worker at others, and claims of others at this worker. */
  readonly #claimsSent = new Map<string, (message: { n: number; part: Part }) => void>();
  readonly #claimsServed = new Map<string, AbortController>();

  constructor({ redis, prefix, log, onEnd, cipher = NO_ENCRYPTION }: RedisSpeculativeCallsOptions) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#log = log;
    this.#cipher = cipher;
    this.#local = new InProcessSpeculativeCalls(onEnd);
  }

  serve(start: StartSpeculativeCall, stop: AbortSignal): void {
    this.#local.serve(start, stop);
    const subscribe = (): void => {
      this.#subscribe(this.#withdrawals, this.#onOfferMessage);
      this.#subscribe(this.#offerChannel(this.#name), this.#onOfferMessage);
      this.#subscribe(this.#claimChannel(this.#name), this.#onClaimMessage);
    };
    this.#redis.subscriptions.on('ready', subscribe);
    if (this.#redis.subscriptions.isReady) subscribe();
    stop.addEventListener('abort', () => {
      this.#redis.subscriptions.off('ready', subscribe);
      const offerChannels = [this.#withdrawals, this.#offerChannel(this.#name)];
      this.#redis.subscriptions.unsubscribe(offerChannels, this.#onOfferMessage).catch(() => undefined);
      for (const dropped of this.#claimsServed.values()) dropped.abort();
    });
  }

  offer(call: SpeculativeCall): void {
    const { turnId } = call;
    const offering = Promise.resolve(call).then((offered) => this.#offerToOne(offered));
    this.#offered.set(
      turnId,
      offering.catch((error: unknown) => {
        this.#log.debug({ turnId, err: error }, 'a turn got no speculative call');
        return undefined;
      }),
    );
  }

  accept(turn: TurnAccepted): void {
    const { turnId } = turn;
    const offered = this.#offered.get(turnId);
    this.#offered.delete(turnId);
    void offered?.then((worker) => {
      if (worker !== undefined) void this.#publish(this.#offerChannel(worker), { accept: turn });
    });
  }

  withdraw(turnId: string): void {
    this.#offered.delete(turnId);
    void this.#publish(this.#withdrawals, { withdraw: turnId });
  }

  claim(call: ClaimedCall, signal: AbortSignal, onUnreported: OnUnreported): Promise<ClaimedMessage | undefined> {
    return this.#local.claim(call, signal, onUnreported);
  }

  async claimElsewhere(
    call: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<AsyncIterable<ModelChunk> | undefined> {
    const taking = this.#takeFromOther(call.turnId);
    const owner = await orUndefinedAfter(taking);
    if (typeof owner === 'string') return this.#claimFrom({ owner, call, signal, onUnreported });
    // If Redis responds later, the call is ended.
    if (owner === undefined) this.#endWhenTaken(call.turnId, taking, onUnreported);
    return undefined;
  }

  forgo(turnId: string, onUnreported: OnUnreported): void {
    this.#local.forgo(turnId, onUnreported);
    this.#endWhenTaken(turnId, this.#takeFromOther(turnId), onUnreported);
  }

  /**
   * Marks the call as claimed: no other worker can claim it, and a later offer is ignored. Returns the other worker that
   * owns the call, or null.
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
    // Without Redis no other worker has received an offer.
    taking.then(end).catch(() => undefined);
  }

  async #offerToOne(call: SpeculativeCall): Promise<string | undefined> {
    const worker = await this.#offerToFirstWorker(call);
    if (worker === undefined) {
      await this.#findWorkers();
      return this.#offerToFirstWorker(call);
    }
    if (Date.now() - this.#foundAt > WORKERS_MAX_AGE_MS) void this.#findWorkers().catch(() => undefined);
    return worker;
  }

  /**
   * Offers the call to one worker after the other, until one receives it, and returns that one. The turns of a session
   * are offered to the same worker, which has its conversation in memory.
   */
  async #offerToFirstWorker(call: SpeculativeCall): Promise<string | undefined> {
    for (const worker of rankWorkers(call.sessionId, this.#workers)) {
      if (!this.#offered.has(call.turnId)) return undefined;
      const channel = this.#offerChannel(worker);
      const message = this.#sealed(channel, { offer: call });
      const receivers = await this.#redis.commands.eval(OFFER, {
        keys: [this.#key(call.turnId)],
        arguments: [worker, channel, message, String(REMEMBERED_SECONDS)],
      });
      if (receivers !== 0) return worker;
    }
    return undefined;
  }

  async #findWorkers(): Promise<void> {
    this.#foundAt = Date.now();
    const prefix = this.#offerChannel('').replaceAll(/[*?[\]\\]/g, String.raw`\$&`);
    const channels = await this.#redis.commands.pubSubChannels(`${prefix}*`);
    this.#workers = channels.map((channel) => channel.slice(this.#offerChannel('').length));
  }

  async #claimFrom({
    owner,
    call,
    signal,
    onUnreported,
  }: ClaimAtOther): Promise<AsyncIterable<ModelChunk> | undefined> {
    const claim = randomUUID();
    const channel = this.#claimChannel(owner);
    const parts = this.#partsOf(claim, signal, () => void this.#publish(channel, { claim, drop: true }));
    const first = parts.next();
    // Otherwise a worker that has lost its connection to Redis would be detected after `SILENCE_MS` only.
    void this.#publish(channel, { claim, from: this.#name, call }).then((receivers) => {
      if (receivers === 0) this.#claimsSent.get(claim)?.({ n: 0, part: { type: 'lost' } });
    });
    const { value: part } = await first;
    if (part?.type === 'begun') return chunksOf(parts);
    await parts.return(undefined);
    if (part?.type === 'lost' || (part?.type === 'none' && part.isSent)) onUnreported();
    return undefined;
  }

  /** The parts of an answer that another worker sends, in order, up to and including the last one. */
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
    this.#claimsSent.set(claim, ({ n, part }) => {
      silence.reset();
      put(n === expected++ ? part : { type: 'lost' });
    });
    const stopListening = onAbort(signal, () => put({ type: 'end' }));
    let isComplete = false;
    try {
      for (;;) {
        await wake.promise;
        wake = Promise.withResolvers<void>();
        for (let part = inbox.shift(); part; part = inbox.shift()) {
          isComplete = part.type === 'none' || (part.type === 'end' && !signal.aborted) || part.type === 'failed';
          if (part.type !== 'alive') yield part;
        }
      }
    } finally {
      silence.stop();
      stopListening();
      this.#claimsSent.delete(claim);
      if (!isComplete) drop();
    }
  }

  readonly #onOfferMessage = this.#listener((message: OfferMessage) => {
    if ('withdraw' in message) this.#local.withdraw(message.withdraw);
    else if ('accept' in message) this.#local.accept(message.accept);
    else this.#local.offer(message.offer);
  });

  readonly #onClaimMessage = this.#listener((message: ClaimMessage) => {
    if ('call' in message) void this.#serveClaim(message);
    else if ('drop' in message) this.#claimsServed.get(message.claim)?.abort();
    else this.#claimsSent.get(message.claim)?.(message);
  });

  #listener(handle: (message: never) => void): (text: string, channel: string) => void {
    return (text, channel) => {
      try {
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by another process of this system
        handle(JSON.parse(this.#cipher.openText(text, channel)) as never);
      } catch (error) {
        // Thrown in the client's listener, the error would close the connection.
        this.#log.error({ err: error }, 'a message about speculative calls could not be read');
      }
    };
  }

  /** Sends an answer to the worker that has claimed it. */
  async #serveClaim({ claim, from, call }: Extract<ClaimMessage, { call: unknown }>): Promise<void> {
    const dropped = new AbortController();
    this.#claimsServed.set(claim, dropped);
    let n = 0;
    const send = (part: Part): void => void this.#publish(this.#claimChannel(from), { claim, n: n++, part });
    const alive = setInterval(() => send({ type: 'alive' }), ALIVE_MS);
    try {
      let isSent = false;
      const chunks = await this.#local.relay(call, dropped.signal, () => (isSent = true));
      send(chunks ? { type: 'begun' } : { type: 'none', isSent });
      for await (const chunk of chunks ?? []) send({ type: 'chunk', chunk });
      // An answer that was dropped here is incomplete.
      if (chunks) send({ type: dropped.signal.aborted ? 'lost' : 'end' });
    } catch (error) {
      send(dropped.signal.aborted ? { type: 'lost' } : failed(error));
    } finally {
      clearInterval(alive);
      this.#claimsServed.delete(claim);
    }
  }

  get #withdrawals(): string {
    return `${this.#prefix}withdrawals`;
  }

  #offerChannel(worker: string): string {
    return `${this.#prefix}offers:${worker}`;
  }

  #claimChannel(worker: string): string {
    return `${this.#prefix}worker:${worker}`;
  }

  #key(turnId: string): string {
    return `${this.#prefix}speculative-call:${turnId}`;
  }

  /** Returns the number of receivers. */
  #publish(channel: string, message: OfferMessage | ClaimMessage): Promise<number> {
    return this.#redis.commands.publish(channel, this.#sealed(channel, message)).catch(() => 0);
  }

  #sealed(channel: string, message: OfferMessage | ClaimMessage): string {
    return this.#cipher.sealText(JSON.stringify(message), channel);
  }

  #subscribe(channel: string, listener: (text: string, channel: string) => void): void {
    // Fails if Redis is unavailable; repeated when the connection is ready again.
    this.#redis.subscriptions.subscribe(channel, listener).catch((error: unknown) => {
      this.#log.debug({ err: error, channel }, 'no speculative calls without Redis');
    });
  }
}

/** The chunks of an answer that another worker sends. @throws ModelError, BudgetReached */
async function* chunksOf(parts: AsyncIterable<Part>): AsyncGenerator<ModelChunk> {
  for await (const part of parts) {
    if (part.type === 'chunk') yield part.chunk;
    else if (part.type === 'budget_reached') throw new BudgetReached(part.report);
    else if (part.type === 'failed') throw new ModelError(part.failure, part.message, part);
    else if (part.type === 'lost')
      throw new ModelError('broken_stream', 'the answer of a model call on another worker was cut off');
    else return;
  }
}

/** Rendezvous hashing: the order of workers for a session is stable while other workers start and stop. */
function rankWorkers(sessionId: string, workers: string[]): string[] {
  const ranks = new Map(workers.map((worker) => [worker, sha256(`${sessionId}/${worker}`)]));
  return workers.toSorted((a, b) => ((ranks.get(a) ?? '') < (ranks.get(b) ?? '') ? -1 : 1));
}

function failed(error: unknown): Part {
  if (error instanceof BudgetReached) return { type: 'budget_reached', report: error.report };
  const { failure, message, retryAfterMs, status, isTooLong, isExplained, contextTokens, namesContext } =
    error instanceof ModelError ? error : new ModelError('overloaded', `internal error: ${String(error)}`);
  const length = { isTooLong, isExplained, contextTokens, namesContext };
  return { type: 'failed', failure, message, retryAfterMs, status, ...length };
}

/** The response of Redis; undefined if it is unavailable or too slow. */
function orUndefinedAfter<T>(response: Promise<T>): Promise<T | undefined> {
  return withTimeout(REDIS_MS, response).catch(() => undefined);
}
