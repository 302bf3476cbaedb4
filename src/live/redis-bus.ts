import type { Logger } from 'pino';
import { EncryptionKeyMissing, NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import type { Redis } from '../lib/redis.ts';
import type { InProgress, LiveBus, LiveFrame, LiveListener, LiveSnapshot } from './bus.ts';
import { PublishedMessages } from './published-messages.ts';

interface RedisBusOptions {
  redis: Redis;
  /** Begins the names of all channels: one for each Everturn on this Redis. */
  prefix: string;
  log: Logger;
  /** For what is said: by default it goes as it is. */
  cipher?: Cipher;
}

/** A turn that somebody in this process watches. */
interface Watched {
  listeners: Set<LiveListener>;
  /** Settles when Redis sends what is published on it, or can't. */
  subscribed: Promise<void>;
  /** Set while an answer is waited for. */
  asking: NodeJS.Timeout | undefined;
  /** Somebody has asked since. */
  askAgain: boolean;
}

/** Each frame behind a gap asks; as long as no snapshot comes they are one question for so long. */
const ASK_AGAIN_MS = 250;

/** What may wait to be taken by Redis; past it frames are dropped until it has caught up. */
const MAX_UNSENT_CHARACTERS = 16 * 1024 * 1024;

/**
 * The live bus of an Everturn whose processes run apart: a channel for each turn, on which frames and snapshots go in
 * the order in which their worker has sent them, and one on which readers ask all workers for snapshots.
 *
 * Redis stores nothing. The text of a message in progress is in the memory of the worker that writes it, where a frame
 * costs nothing but its way, and where no restart, flush or expiry of Redis can lose it; the worker sends it as a
 * snapshot when a reader asks, and by itself when frames may have been lost: after an outage, or because Redis was too
 * slow to take them.
 */
export class RedisBus implements LiveBus {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #log: Logger;
  readonly #cipher: Cipher;
  readonly #inProgress = new PublishedMessages();
  readonly #watched = new Map<string, Watched>();
  /** Turns whose readers have asked for snapshots: one answer for all who ask at a time. */
  readonly #asked = new Set<string>();
  /** Turns of which frames were dropped. */
  readonly #dropped = new Set<string>();
  #unsent = 0;
  readonly #refusals = new Set<'publish' | 'subscribe' | 'read'>();

  constructor({ redis, prefix, log, cipher = NO_ENCRYPTION }: RedisBusOptions) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#log = log;
    this.#cipher = cipher;
    for (const client of [redis.commands, redis.subscriptions]) client.on('ready', () => void this.#resume());
    void this.#resume();
  }

  publish(frame: LiveFrame): void {
    this.#inProgress.add(frame);
    this.#send(frame);
  }

  finish(message: Pick<InProgress, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#inProgress.finish(message);
    if (!this.#inProgress.has(message.turnId)) this.#dropped.delete(message.turnId);
  }

  subscribe(turnId: string, listener: LiveListener): () => void {
    const watched = this.#watched.get(turnId) ?? {
      listeners: new Set(),
      subscribed: this.#subscribe(this.#channel(turnId)),
      asking: undefined,
      askAgain: false,
    };
    this.#watched.set(turnId, watched);
    watched.listeners.add(listener);
    return () => {
      watched.listeners.delete(listener);
      if (watched.listeners.size > 0 || this.#watched.get(turnId) !== watched) return;
      this.#watched.delete(turnId);
      stopAsking(watched);
      this.#unsubscribe(this.#channel(turnId));
    };
  }

  ask(turnId: string): void {
    const watched = this.#watched.get(turnId);
    if (!watched) return;
    if (watched.asking) {
      watched.askAgain = true;
      return;
    }
    watched.asking = setTimeout(() => {
      const { askAgain } = watched;
      stopAsking(watched);
      if (askAgain) this.ask(turnId);
    }, ASK_AGAIN_MS).unref();
    // An answer that comes before the subscription would be lost.
    void watched.subscribed.then(() => this.#publish(this.#questions, turnId));
  }

  get #questions(): string {
    return `${this.#prefix}questions`;
  }

  #channel(turnId: string): string {
    return `${this.#prefix}turn:${turnId}`;
  }

  /**
   * Both connections are there (again). Whoever comes last of a reader and a worker, by this they are of one mind: the
   * reader hears the worker's snapshots, or the worker the reader's question.
   */
  async #resume(): Promise<void> {
    if (!this.#redis.commands.isReady || !this.#redis.subscriptions.isReady) return;
    const questions = this.#subscribe(this.#questions);
    for (const [turnId, watched] of this.#watched) {
      watched.subscribed = this.#subscribe(this.#channel(turnId));
      stopAsking(watched);
    }
    this.#unsubscribeForgotten();
    await questions;
    for (const turnId of this.#inProgress.turnIds) this.#sendSnapshots(turnId);
    for (const { listeners } of this.#watched.values()) for (const listener of listeners) listener.lost();
  }

  #send(message: LiveFrame | LiveSnapshot): void {
    const { turnId } = message;
    const drop = (): void => {
      if (this.#inProgress.has(turnId)) this.#dropped.add(turnId);
    };
    if (this.#unsent > MAX_UNSENT_CHARACTERS) drop();
    else {
      const channel = this.#channel(turnId);
      this.#publish(channel, this.#cipher.sealText(JSON.stringify(message), channel), drop);
    }
  }

  #sendSnapshots(turnId: string): void {
    for (const snapshot of this.#inProgress.on(turnId)) this.#send(snapshot);
  }

  #publish(channel: string, message: string, onLost?: () => void): void {
    // What is lost by this, `#resume` makes up for.
    if (!this.#redis.commands.isReady) return;
    this.#unsent += message.length;
    this.#redis.commands.publish(channel, message).then(
      () => {
        this.#unsent -= message.length;
        this.#refusals.delete('publish');
        if (this.#dropped.size > 0 && this.#unsent < MAX_UNSENT_CHARACTERS / 2) this.#makeUpForDropped();
      },
      (error: unknown) => {
        this.#unsent -= message.length;
        onLost?.();
        this.#refused('publish', error);
      },
    );
  }

  #makeUpForDropped(): void {
    const turnIds = [...this.#dropped];
    this.#dropped.clear();
    for (const turnId of turnIds) this.#sendSnapshots(turnId);
  }

  /** One line in the log until Redis does as it is told again. An outage is not news here. */
  #refused(what: 'publish' | 'subscribe' | 'read', error: unknown): void {
    if (this.#refusals.has(what) || !this.#redis.commands.isReady || !this.#redis.subscriptions.isReady) return;
    this.#refusals.add(what);
    this.#log.warn(
      { reason: String(error) },
      'Redis does not carry live text: readers get it when a message is finished',
    );
  }

  async #subscribe(channel: string): Promise<void> {
    try {
      await this.#redis.subscriptions.subscribe(channel, this.#onMessage);
      this.#refusals.delete('subscribe');
    } catch (error) {
      this.#refused('subscribe', error);
    }
  }

  #unsubscribe(channel: string): void {
    // If that fails, `#resume` does it.
    this.#redis.subscriptions.unsubscribe(channel, this.#onMessage).catch(() => undefined);
  }

  /** The client subscribes again to all that it was subscribed to, also to what it was told to leave during an outage. */
  #unsubscribeForgotten(): void {
    for (const channel of this.#redis.subscriptions.getPubSubListeners('CHANNELS').keys()) {
      if (!channel.startsWith(this.#channel(''))) continue;
      if (!this.#watched.has(channel.slice(this.#channel('').length))) this.#unsubscribe(channel);
    }
  }

  readonly #onMessage = (message: string, channel: string): void => {
    try {
      if (channel === this.#questions) this.#answer(message);
      else this.#deliver(channel.slice(this.#channel('').length), message);
    } catch (error) {
      // Thrown at the client it would cost the connection.
      if (error instanceof EncryptionKeyMissing) this.#refused('read', error);
      else this.#log.error({ err: error, channel }, 'a message on the live bus could not be used');
    }
  };

  #answer(turnId: string): void {
    if (this.#asked.size === 0) {
      setImmediate(() => {
        const turnIds = [...this.#asked];
        this.#asked.clear();
        for (const each of turnIds) this.#sendSnapshots(each);
      });
    }
    this.#asked.add(turnId);
  }

  #deliver(turnId: string, text: string): void {
    const watched = this.#watched.get(turnId);
    if (!watched) return;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `#send`
    const message = JSON.parse(this.#cipher.openText(text, this.#channel(turnId))) as LiveFrame | LiveSnapshot;
    if ('frames' in message) stopAsking(watched);
    for (const listener of watched.listeners) {
      if ('frames' in message) listener.snapshot(structuredClone(message));
      else listener.frame(message);
    }
  }
}

function stopAsking(watched: Watched): void {
  clearTimeout(watched.asking);
  watched.asking = undefined;
  watched.askAgain = false;
}
