import type { ServerResponse } from 'node:http';
import type { Response } from 'express';
import type { Metrics } from '../../telemetry/metrics.ts';

/** A comment often enough for every proxy and client on the way; both SDKs give up after 60 s of silence. */
const HEARTBEAT_MS = 15_000;

/** A reader that takes nothing for this long is gone, whatever its connection says. */
const STALLED_MS = 60_000;

/**
 * A reader that is this far behind gets nothing more until it has taken what it was sent. A thousand of them are to be
 * no trouble: what they lack is in the log.
 */
const MAX_BUFFERED_BYTES = 256 * 1024;

/** An event of a stream. `data` is sent as JSON; `id` is what a client that reconnects sends as `Last-Event-ID`. */
export interface ServerSentEvent {
  id: number;
  data: object;
}

type StreamMetrics = Pick<Metrics, 'readers' | 'readersDisconnected'>;

/** Whether an answer is an event stream. */
export function isStream(answer: ServerResponse): boolean {
  return String(answer.getHeader('content-type')).startsWith('text/event-stream');
}

/** One server-sent event stream (`contracts/sessions-api.md`, section 2). */
export class EventStream {
  readonly #response: Response;
  readonly #metrics: StreamMetrics;
  #heartbeat: NodeJS.Timeout | undefined;
  #onDelivered: (() => void) | undefined;
  /** What may wait to be taken. */
  #allowance = MAX_BUFFERED_BYTES;

  constructor(response: Response, metrics: StreamMetrics) {
    this.#response = response;
    this.#metrics = metrics;
  }

  /** True once nobody listens any more. */
  get isClosed(): boolean {
    return this.#response.destroyed || this.#response.writableEnded;
  }

  /** Settles when the stream has ended, from either side. */
  untilClosed(): Promise<void> {
    if (this.#response.closed) return Promise.resolve();
    return new Promise((resolve) => void this.#response.once('close', resolve));
  }

  /** Calls `listener` once when the first event has been given to the network. */
  onDelivered(listener: () => void): void {
    this.#onDelivered = listener;
  }

  /** Sends the headers; from here on the answer is a 200. */
  open(): void {
    if (this.isClosed) return;
    this.#response.status(200).set({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      // Proxies that buffer would hold events back.
      'x-accel-buffering': 'no',
    });
    this.#response.flushHeaders();
    this.#response.socket?.setNoDelay(true);
    this.#heartbeat = setInterval(() => this.#response.write(': hb\n\n'), HEARTBEAT_MS);
    this.#metrics.readers.inc();
    this.#response.once('close', () => {
      clearInterval(this.#heartbeat);
      this.#metrics.readers.dec();
    });
  }

  /** Instead of a stream: there is nothing to come. */
  nothing(): void {
    this.#response.status(204).end();
  }

  /** Sends what a reader has missed, at the reader's pace: an event is taken from `events` when it is sent. */
  async write(events: Iterable<ServerSentEvent>): Promise<void> {
    if (this.isClosed) return;
    for (const event of events) {
      if (!this.#send(serialize(event))) await this.drained();
      if (this.isClosed) return;
    }
  }

  /** Sends what happens now. False if the reader does not keep up: wait for `drained` then, and let it catch up. */
  push(events: Iterable<ServerSentEvent>): boolean {
    if (this.isClosed) return true;
    const keptUp = this.#response.writableLength === 0;
    this.#send(Array.from(events, serialize).join(''));
    const waiting = this.#response.writableLength;
    // However much it is that a reader is sent at once, such as a long result: it must be able to take that.
    if (keptUp) this.#allowance = waiting + MAX_BUFFERED_BYTES;
    return waiting <= this.#allowance;
  }

  /** Waits until the reader has taken what it was sent. One that takes nothing for too long is disconnected. */
  async drained(): Promise<void> {
    if (this.isClosed || !this.#response.writableNeedDrain) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    let left = this.#response.writableLength;
    const watch = setInterval(() => {
      if (this.#response.writableLength >= left) {
        this.#metrics.readersDisconnected.inc();
        this.#response.destroy();
      }
      left = this.#response.writableLength;
    }, STALLED_MS);
    this.#response.once('drain', resolve).once('close', resolve);
    await promise;
    this.#response.off('drain', resolve).off('close', resolve);
    clearInterval(watch);
  }

  end(): void {
    clearInterval(this.#heartbeat);
    this.#response.end();
  }

  #send(text: string): boolean {
    const onDelivered = this.#onDelivered;
    this.#onDelivered = undefined;
    return this.#response.write(text, (error) => {
      if (!error) onDelivered?.();
    });
  }
}

function serialize({ id, data }: ServerSentEvent): string {
  return `id: ${id}\ndata: ${JSON.stringify(data)}\n\n`;
}
