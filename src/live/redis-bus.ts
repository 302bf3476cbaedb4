import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import type { RetryNotice } from '../core/attempts.ts';
import { EncryptionKeyMissing, NO_ENCRYPTION, type Cipher } from '../encryption/cipher.ts';
import type { Redis } from '../lib/redis.ts';
import type { LiveBus, LiveFrame, LiveListener, LiveOutput, LiveSnapshot, MessageAttempt, Topic } from './bus.ts';
import { LiveOutputs } from './live-outputs.ts';
import { PublishedMessages } from './published-messages.ts';
import { Listeners } from './listeners.ts';

interface RedisBusOptions {
  redis: Redis;
  /** The prefix of all channel names: one for each Everturn on this Redis. */
  prefix: string;
  log: Logger;
  /** Encrypts frames and snapshots; by default they are sent in plain text. */
  cipher?: Cipher;
}

/** A turn that has subscribers in this process. */
interface WatchedTurn {
  listeners: Set<LiveListener>;
  /** Settles when the subscription to the turn's channel is active or has failed. */
  subscribed: Promise<void>;
  /** Set while snapshots are awaited. */
  requestTimer: NodeJS.Timeout | undefined;
  /** Snapshots were requested again meanwhile. */
  repeatRequest: boolean;
}

/** Each frame after a gap requests snapshots; until one arrives, the requests of this period are sent as one. */
const REQUEST_INTERVAL_MS = 250;

const GROWTH = 'growth:';

/** Begins a hint; frames and snapshots are JSON, or encrypted. */
const HINT = 'hint ';

/** Begins a notice. Processes of earlier versions take it for a hint without listeners. */
const NOTICE = `${HINT}notice `;

/** The limit of what waits to be accepted by Redis; above it frames are dropped until Redis has caught up. */
const MAX_UNSENT_CHARACTERS = 16 * 1024 * 1024;

/**
 * The live bus between separate processes: a channel for each turn, on which frames and snapshots are published in the
 * order in which their worker has sent them, and the hints that its log grows; and two channels to all processes: on one
 * readers request snapshots, the other carries all other hints.
 *
 * Redis stores nothing. The text of a message in progress is in the memory of the worker that writes it: a frame costs
 * one publication, and no restart, flush or expiry of Redis can lose the text. The worker sends it as a snapshot when a
 * reader requests one, and unprompted when frames may have been lost: after an outage, or because Redis was too slow to
 * accept them.
 */
export class RedisBus implements LiveBus {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #log: Logger;
  readonly #cipher: Cipher;
  /** Names the sender of a hint, which drops its own when Redis returns it. */
  readonly #id = randomUUID();
  readonly #published = new PublishedMessages();
  readonly #outputs = new LiveOutputs();
  readonly #hintListeners = new Listeners<string, () => void>();
  readonly #watched = new Map<string, WatchedTurn>();
  /** Turns whose snapshots were requested since the last event-loop turn: all requests get one response. */
  readonly #requested = new Set<string>();
  /** Turns with dropped frames. */
  readonly #dropped = new Set<string>();
  #unsent = 0;
  readonly #failing = new Set<'publish' | 'subscribe' | 'read'>();

  constructor({ redis, prefix, log, cipher = NO_ENCRYPTION }: RedisBusOptions) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#log = log;
    this.#cipher = cipher;
    for (const client of [redis.commands, redis.subscriptions]) client.on('ready', () => void this.#resume());
    void this.#resume();
  }

  publish(frame: LiveFrame): void {
    this.#published.add(frame);
    this.#send(frame);
  }

  announce(notice: RetryNotice): void {
    const channel = this.#channel(notice.turnId);
    this.#publish(channel, `${NOTICE}${this.#cipher.sealText(JSON.stringify(notice), channel)}`);
  }

  finish(message: Pick<MessageAttempt, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#published.finish(message);
    this.#forgetDropped(message.turnId);
  }

  publishOutput(output: LiveOutput): void {
    this.#outputs.add(output);
    this.#send(output);
  }

  finishOutput({ turnId, id, attempt }: Pick<LiveOutput, 'turnId' | 'id' | 'attempt'>): void {
    this.#outputs.delete(id, attempt);
    this.#forgetDropped(turnId);
  }

  subscribe(turnId: string, listener: LiveListener): () => void {
    const watched = this.#watched.get(turnId) ?? {
      listeners: new Set(),
      subscribed: this.#subscribe(this.#channel(turnId)),
      requestTimer: undefined,
      repeatRequest: false,
    };
    this.#watched.set(turnId, watched);
    watched.listeners.add(listener);
    return () => {
      watched.listeners.delete(listener);
      if (watched.listeners.size > 0 || this.#watched.get(turnId) !== watched) return;
      this.#watched.delete(turnId);
      endRequest(watched);
      this.#unsubscribe(this.#channel(turnId));
    };
  }

  requestSnapshots(turnId: string): void {
    const watched = this.#watched.get(turnId);
    if (!watched) return;
    if (watched.requestTimer) {
      watched.repeatRequest = true;
      return;
    }
    watched.requestTimer = setTimeout(() => {
      const { repeatRequest } = watched;
      endRequest(watched);
      if (repeatRequest) this.requestSnapshots(turnId);
    }, REQUEST_INTERVAL_MS).unref();
    // A snapshot that is published before the subscription is active would be lost.
    void watched.subscribed.then(() => this.#publish(this.#requestChannel, turnId));
  }

  hint(topic: Topic): void {
    this.#notify(topic);
    const channel = topic.startsWith(GROWTH) ? this.#channel(topic.slice(GROWTH.length)) : this.#hintChannel;
    this.#publish(channel, `${HINT}${this.#id} ${topic}`);
  }

  onHint(topic: Topic, listener: () => void): () => void {
    return this.#hintListeners.add(topic, listener);
  }

  get #requestChannel(): string {
    return `${this.#prefix}snapshot-requests`;
  }

  get #hintChannel(): string {
    return `${this.#prefix}hints`;
  }

  #onHint(text: string): void {
    const [sender, topic = ''] = text.split(' ');
    if (sender !== this.#id) this.#notify(topic);
  }

  #onNotice(text: string, channel: string): void {
    const { listeners = [] } = this.#watched.get(channel.slice(this.#channel('').length)) ?? {};
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `announce`
    const notice = JSON.parse(this.#cipher.openText(text, channel)) as RetryNotice;
    for (const listener of listeners) listener.retrying(notice);
  }

  #notify(topic: string): void {
    for (const listener of this.#hintListeners.of(topic)) listener();
  }

  #channel(turnId: string): string {
    return `${this.#prefix}turn:${turnId}`;
  }

  /**
   * Runs when both connections are ready, also after a reconnect: subscribes again, publishes snapshots of all messages
   * in progress and has listeners request those of other workers. So a reader and a worker are in sync after whichever
   * of them connects last: the reader receives the worker's snapshots, or the worker the reader's request.
   */
  async #resume(): Promise<void> {
    if (!this.#redis.commands.isReady || !this.#redis.subscriptions.isReady) return;
    const common = [this.#requestChannel, this.#hintChannel];
    const subscribed = Promise.all(common.map((channel) => this.#subscribe(channel)));
    for (const [turnId, watched] of this.#watched) {
      watched.subscribed = this.#subscribe(this.#channel(turnId));
      endRequest(watched);
    }
    this.#unsubscribeUnwatched();
    await subscribed;
    const outputs = [...this.#outputs.all].map(({ turnId }) => turnId);
    for (const turnId of new Set([...this.#published.turnIds, ...outputs])) this.#sendSnapshots(turnId);
    for (const { listeners } of this.#watched.values()) for (const listener of listeners) listener.lost();
  }

  /** Whether this process writes text of a turn. */
  #writes(turnId: string): boolean {
    return this.#published.has(turnId) || this.#outputs.has(turnId);
  }

  #forgetDropped(turnId: string): void {
    if (!this.#writes(turnId)) this.#dropped.delete(turnId);
  }

  #send(message: LiveFrame | LiveSnapshot | LiveOutput): void {
    const { turnId } = message;
    const drop = (): void => {
      if (this.#writes(turnId)) this.#dropped.add(turnId);
    };
    if (this.#unsent > MAX_UNSENT_CHARACTERS) drop();
    else {
      const channel = this.#channel(turnId);
      this.#publish(channel, this.#cipher.sealText(JSON.stringify(message), channel), drop);
    }
  }

  #sendSnapshots(turnId: string): void {
    for (const snapshot of this.#published.on(turnId)) this.#send(snapshot);
    for (const output of this.#outputs.on(turnId)) this.#send(output);
  }

  #publish(channel: string, message: string, onLost?: () => void): void {
    // `#resume` sends snapshots in place of the frames that are lost here.
    if (!this.#redis.commands.isReady) return;
    this.#unsent += message.length;
    this.#redis.commands.publish(channel, message).then(
      () => {
        this.#unsent -= message.length;
        this.#failing.delete('publish');
        if (this.#dropped.size > 0 && this.#unsent < MAX_UNSENT_CHARACTERS / 2) this.#sendDropped();
      },
      (error: unknown) => {
        this.#unsent -= message.length;
        onLost?.();
        this.#warnOnce('publish', error);
      },
    );
  }

  #sendDropped(): void {
    const turnIds = [...this.#dropped];
    this.#dropped.clear();
    for (const turnId of turnIds) this.#sendSnapshots(turnId);
  }

  /** Logs the first of consecutive failures of an operation; none during an outage, which is logged elsewhere. */
  #warnOnce(operation: 'publish' | 'subscribe' | 'read', error: unknown): void {
    if (this.#failing.has(operation) || !this.#redis.commands.isReady || !this.#redis.subscriptions.isReady) return;
    this.#failing.add(operation);
    this.#log.warn(
      { reason: String(error) },
      'Redis does not carry live text: readers get the text of a message when it is complete',
    );
  }

  async #subscribe(channel: string): Promise<void> {
    try {
      await this.#redis.subscriptions.subscribe(channel, this.#onMessage);
      this.#failing.delete('subscribe');
    } catch (error) {
      this.#warnOnce('subscribe', error);
    }
  }

  #unsubscribe(channel: string): void {
    // If this fails, `#resume` repeats it.
    this.#redis.subscriptions.unsubscribe(channel, this.#onMessage).catch(() => undefined);
  }

  /** After an outage the client restores all subscriptions, also those that were to be removed during the outage. */
  #unsubscribeUnwatched(): void {
    for (const channel of this.#redis.subscriptions.getPubSubListeners('CHANNELS').keys()) {
      if (!channel.startsWith(this.#channel(''))) continue;
      if (!this.#watched.has(channel.slice(this.#channel('').length))) this.#unsubscribe(channel);
    }
  }

  readonly #onMessage = (message: string, channel: string): void => {
    try {
      if (channel === this.#requestChannel) this.#onRequest(message);
      else if (message.startsWith(NOTICE)) this.#onNotice(message.slice(NOTICE.length), channel);
      else if (message.startsWith(HINT)) this.#onHint(message.slice(HINT.length));
      else this.#deliver(channel.slice(this.#channel('').length), message);
    } catch (error) {
      // An error that reaches the client would close the connection.
      if (error instanceof EncryptionKeyMissing) this.#warnOnce('read', error);
      else this.#log.error({ err: error, channel }, 'cannot process a message on the live bus');
    }
  };

  #onRequest(turnId: string): void {
    if (this.#requested.size === 0) {
      setImmediate(() => {
        const turnIds = [...this.#requested];
        this.#requested.clear();
        for (const each of turnIds) this.#sendSnapshots(each);
      });
    }
    this.#requested.add(turnId);
  }

  #deliver(turnId: string, text: string): void {
    const watched = this.#watched.get(turnId);
    if (!watched) return;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `#send`
    const message = JSON.parse(this.#cipher.openText(text, this.#channel(turnId))) as
      | LiveFrame
      | LiveSnapshot
      | LiveOutput;
    if ('frames' in message || ('parts' in message && message.from === 0)) endRequest(watched);
    for (const listener of watched.listeners) {
      if ('parts' in message) listener.output(message);
      else if ('frames' in message) listener.snapshot(structuredClone(message));
      else listener.frame(message);
    }
  }
}

function endRequest(watched: WatchedTurn): void {
  clearTimeout(watched.requestTimer);
  watched.requestTimer = undefined;
  watched.repeatRequest = false;
}
