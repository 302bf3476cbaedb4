import type { ServerResponse } from 'node:http';
import type { Response } from 'express';
import { z } from 'zod';
import type { Metrics } from '../../telemetry/metrics.ts';

/** Keeps idle connections open through proxies and clients; both SDKs give up after 60 s of silence. */
const HEARTBEAT_MS = 15_000;

/** A reader that reads nothing for this long is disconnected, even if its connection seems open. */
const STALLED_MS = 60_000;

/**
 * A reader that is this far behind gets no more events until it has caught up from the log. At most this and one event,
 * whose texts have up to 512 KiB, is buffered for it, so that the memory for a thousand slow readers is bounded.
 */
const MAX_BUFFERED_BYTES = 256 * 1024;

/** An event of a stream. `data` is sent as JSON; `id` is what a client that reconnects sends as `Last-Event-ID`. */
export interface ServerSentEvent {
  id: number;
  data: object;
}

/** One event of a stream as it is sent, for OpenAPI: its data is JSON of the schema with this name. */
export function sentAs(schema: string, id = 'the sequence number') {
  return z.object({
    id: z.string().regex(/^\d+$/).describe(id),
    data: z.string().meta({
      contentMediaType: 'application/json',
      contentSchema: { $ref: `#/components/schemas/${schema}` },
    }),
  });
}

type StreamMetrics = Pick<Metrics, 'readers' | 'readersDisconnected'>;

/** Whether a response is an event stream. */
export function isStream(response: ServerResponse): boolean {
  return String(response.getHeader('content-type')).startsWith('text/event-stream');
}

/** One server-sent event stream (see `docs/sessions-api.md`). */
export class EventStream {
  readonly #response: Response;
  readonly #metrics: StreamMetrics;
  #heartbeat: NodeJS.Timeout | undefined;
  #onDelivered: (() => void) | undefined;
  /** The events that `push` did not send. */
  #unsent: Iterable<ServerSentEvent> = [];

  constructor(response: Response, metrics: StreamMetrics) {
    this.#response = response;
    this.#metrics = metrics;
  }

  /** Whether the stream has ended, or the reader has hung up. */
  get isClosed(): boolean {
    return this.#response.destroyed || this.#response.writableEnded;
  }

  /** Calls `listener` when either side has ended the stream; returns the unsubscribe function. */
  onClosed(listener: () => void): () => void {
    if (this.#response.closed) listener();
    else this.#response.once('close', listener);
    return () => this.#response.off('close', listener);
  }

  /** Calls `listener` once, when the first event was handed to the operating system. */
  onDelivered(listener: () => void): void {
    this.#onDelivered = listener;
  }

  /** Sends status 200 and the headers, once; errors can no longer be sent as a response. */
  open(): void {
    if (this.isClosed || this.#response.headersSent) return;
    this.#response.status(200).set({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      // Stops nginx from buffering events.
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

  /** Responds with 204 instead of a stream: no further events will follow. */
  noContent(): void {
    this.#response.status(204).end();
  }

  /** Sets the cursor that a client reconnects with, without an event: the client has everything up to `id`. */
  setCursor(id: number): void {
    if (!this.isClosed) this.#response.write(`id: ${id}\n\n`);
  }

  /** Sends events from the log, at the reader's pace: an event is taken from `events` when it is sent. */
  async write(events: Iterable<ServerSentEvent>): Promise<void> {
    if (this.isClosed) return;
    for (const event of events) {
      if (!this.#send(event)) await this.#drained();
      if (this.isClosed) return;
    }
  }

  /**
   * Sends live events. False if the reader is too slow: the caller then awaits `flush`, and catches up from the log. The
   * events may be a whole message, so those beyond the bound are not even serialized before that.
   */
  push(events: Iterable<ServerSentEvent>): boolean {
    if (this.isClosed) return true;
    const unsent = Iterator.from(events);
    for (let next = unsent.next(); !next.done; next = unsent.next()) {
      this.#send(next.value);
      if (this.#response.writableLength > MAX_BUFFERED_BYTES) {
        this.#unsent = unsent;
        return false;
      }
    }
    return true;
  }

  /** Sends what `push` did not, at the reader's pace. */
  async flush(): Promise<void> {
    await this.#drained();
    await this.write(this.#unsent);
    this.#unsent = [];
  }

  /** Waits until the reader has read everything. A reader that reads nothing for `STALLED_MS` is disconnected. */
  async #drained(): Promise<void> {
    if (this.isClosed || !this.#response.writableNeedDrain) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    let previous = this.#response.writableLength;
    const timer = setInterval(() => {
      if (this.#response.writableLength >= previous) {
        this.#metrics.readersDisconnected.inc();
        this.#response.destroy();
      }
      previous = this.#response.writableLength;
    }, STALLED_MS);
    this.#response.once('drain', resolve).once('close', resolve);
    await promise;
    this.#response.off('drain', resolve).off('close', resolve);
    clearInterval(timer);
  }

  end(): void {
    clearInterval(this.#heartbeat);
    if (!this.isClosed) this.#response.end();
  }

  #send({ id, data }: ServerSentEvent): boolean {
    const onDelivered = this.#onDelivered;
    this.#onDelivered = undefined;
    // As bytes: Node buffers a string that waits for the network twice, once as UTF-8 in three times its length.
    const bytes = Buffer.from(`id: ${id}\ndata: ${JSON.stringify(data)}\n\n`);
    return this.#response.write(bytes, (error) => {
      if (!error) onDelivered?.();
    });
  }
}
