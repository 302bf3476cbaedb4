import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { inTime } from '../in-time.ts';
import { NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import { IdleWatch } from '../models/idle-watch.ts';
import { ModelError, type ModelFailure } from '../models/model-error.ts';
import type { ModelChunk } from '../models/provider.ts';
import type { Redis } from '../redis.ts';
import {
  InProcessHeadStarts,
  type BeginModelCall,
  type ClaimedCall,
  type HeadStart,
  type HeadStartOutcome,
  type HeadStarts,
} from './head-starts.ts';

/** From an API to all workers. */
type Notice = { offer: HeadStart } | { withdraw: string };

/** From one worker to another, about an answer that one has begun and the other has claimed. */
type Letter = { claim: string } & ({ from: string; call: ClaimedCall } | { drop: true } | { n: number; part: Part });

/** `begun`: chunks will come. `none`: there is no such answer. `lost`: what comes next is not known. */
type Part =
  | { type: 'begun' | 'none' | 'alive' | 'end' | 'lost' }
  | { type: 'chunk'; chunk: ModelChunk }
  | { type: 'failed'; failure: ModelFailure; message: string; retryAfterMs: number | undefined };

/** Whoever is to have a head start has it by then, or never. */
const REMEMBERED_SECONDS = 60;

/** What Redis takes longer for is not worth waiting for: the model can be asked meanwhile. */
const REDIS_MS = 500;

const ALIVE_MS = 1_000;
/** A worker that says nothing for so long is gone. */
const SILENCE_MS = 5_000;

interface RedisHeadStartsOptions {
  redis: Redis;
  prefix: string;
  log: Logger;
  /** Of those that were begun here. */
  onEnd?: (outcome: HeadStartOutcome) => void;
  /** For what is said: by default it goes as it is. */
  cipher?: Cipher;
}

/**
 * The head starts of an Everturn whose processes run apart. An offer goes to all workers, and the first one that has
 * its name in Redis makes the call. The activity may run on another worker: then that one gets the answer by Redis,
 * chunk by chunk. Whatever goes wrong on the way, the activity asks the model itself.
 */
export class RedisHeadStarts implements HeadStarts {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #log: Logger;
  readonly #cipher: Cipher;
  readonly #local: InProcessHeadStarts;
  /** This process, among the workers. */
  readonly #name = randomUUID();
  /** Turns that this worker wants to begin, until Redis has said whether it may; not those that are over meanwhile. */
  readonly #wanted = new Set<string>();
  /** Claims of this worker at others, and of others here. */
  readonly #asked = new Map<string, (letter: { n: number; part: Part }) => void>();
  readonly #served = new Map<string, AbortController>();

  constructor({ redis, prefix, log, onEnd, cipher = NO_ENCRYPTION }: RedisHeadStartsOptions) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#log = log;
    this.#cipher = cipher;
    this.#local = new InProcessHeadStarts(onEnd);
  }

  serve(begin: BeginModelCall, stop: AbortSignal): void {
    this.#local.serve(begin, stop);
    const subscribe = (): void => {
      this.#subscribe(this.#notices, this.#onNotice);
      this.#subscribe(this.#letters(this.#name), this.#onLetter);
    };
    this.#redis.subscriptions.on('ready', subscribe);
    if (this.#redis.subscriptions.isReady) subscribe();
    stop.addEventListener('abort', () => {
      this.#redis.subscriptions.off('ready', subscribe);
      this.#redis.subscriptions.unsubscribe(this.#notices, this.#onNotice).catch(() => undefined);
      for (const dropped of this.#served.values()) dropped.abort();
    });
  }

  offer(start: HeadStart): void {
    this.#publish(this.#notices, { offer: start });
  }

  withdraw(turnId: string): void {
    this.#publish(this.#notices, { withdraw: turnId });
  }

  async claim(call: ClaimedCall, signal: AbortSignal): Promise<AsyncIterable<ModelChunk> | undefined> {
    const own = await this.#claimHere(call, signal);
    if (own) return own;
    const { commands } = this.#redis;
    // From here on nobody else can take it: a worker that hears of the offer only now makes no call.
    const owner = await quickly(
      commands.set(this.#key(call.turnId), 'claimed', {
        expiration: { type: 'EX', value: REMEMBERED_SECONDS },
        GET: true,
      }),
    );
    if (!owner || owner === 'claimed' || owner === this.#name) return undefined;
    return this.#claimFrom(owner, call, signal);
  }

  /** What this worker has begun; what it has only wanted to begin, it will not begin any more. */
  #claimHere(call: ClaimedCall, signal: AbortSignal): Promise<AsyncIterable<ModelChunk> | undefined> {
    this.#wanted.delete(call.turnId);
    return this.#local.claim(call, signal);
  }

  async #claimFrom(
    owner: string,
    call: ClaimedCall,
    signal: AbortSignal,
  ): Promise<AsyncIterable<ModelChunk> | undefined> {
    const claim = randomUUID();
    const parts = this.#partsOf(claim, signal, () => this.#publish(this.#letters(owner), { claim, drop: true }));
    this.#publish(this.#letters(owner), { claim, from: this.#name, call });
    const { value: first } = await parts.next();
    if (first?.type === 'begun') return chunksOf(parts);
    await parts.return(undefined);
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
    const silence = new IdleWatch(SILENCE_MS);
    silence.signal.addEventListener('abort', () => put({ type: 'lost' }));
    this.#asked.set(claim, ({ n, part }) => {
      silence.heard();
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

  readonly #onNotice = this.#reading((notice: Notice) => {
    if ('withdraw' in notice) {
      this.#wanted.delete(notice.withdraw);
      this.#local.withdraw(notice.withdraw);
    } else void this.#take(notice.offer);
  });

  async #take(start: HeadStart): Promise<void> {
    const { commands } = this.#redis;
    const expiration = { type: 'EX', value: REMEMBERED_SECONDS } as const;
    this.#wanted.add(start.turnId);
    const taken = await quickly(commands.set(this.#key(start.turnId), this.#name, { condition: 'NX', expiration }));
    const isWanted = this.#wanted.delete(start.turnId);
    if (taken && isWanted) this.#local.offer(start);
  }

  readonly #onLetter = this.#reading((letter: Letter) => {
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
        this.#log.error({ err: error }, 'a message about head starts could not be used');
      }
    };
  }

  /** Sends an answer to the worker that has claimed it. */
  async #serveClaim({ claim, from, call }: Extract<Letter, { call: unknown }>): Promise<void> {
    const dropped = new AbortController();
    this.#served.set(claim, dropped);
    let n = 0;
    const send = (part: Part): void => this.#publish(this.#letters(from), { claim, n: n++, part });
    const alive = setInterval(() => send({ type: 'alive' }), ALIVE_MS);
    try {
      const chunks = await this.#claimHere(call, dropped.signal);
      send({ type: chunks ? 'begun' : 'none' });
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

  get #notices(): string {
    return `${this.#prefix}head-starts`;
  }

  #letters(worker: string): string {
    return `${this.#prefix}worker:${worker}`;
  }

  #key(turnId: string): string {
    return `${this.#prefix}head-start:${turnId}`;
  }

  #publish(channel: string, message: Notice | Letter): void {
    const text = this.#cipher.sealText(JSON.stringify(message), channel);
    this.#redis.commands.publish(channel, text).catch(() => undefined);
  }

  #subscribe(channel: string, listener: (text: string, channel: string) => void): void {
    // If it fails, Redis is away: this is done again when it is back.
    this.#redis.subscriptions.subscribe(channel, listener).catch((error: unknown) => {
      this.#log.debug({ err: error, channel }, 'no head starts without Redis');
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

function failed(error: unknown): Part {
  const { failure, message, retryAfterMs } =
    error instanceof ModelError ? error : new ModelError('overloaded', `internal error: ${String(error)}`);
  return { type: 'failed', failure, message, retryAfterMs };
}

/** What Redis answers; undefined if it is away or takes too long. */
function quickly<T>(answer: Promise<T>): Promise<T | undefined> {
  return inTime(REDIS_MS, answer).catch(() => undefined);
}
