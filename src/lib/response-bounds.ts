import { setImmediate as nextTurn } from 'node:timers/promises';
import { NamedError } from './errors.ts';

/** Limits of a response from another server, in decompressed bytes. */
export interface ResponseBounds {
  /** Size of a unit that is parsed at once: a whole response, or one event of an event stream. */
  maxBytes: number;
  /** Total size of an event stream; without it a stream may last as long as its connection. */
  maxStreamBytes?: number;
  /** Number of values in a unit that is parsed at once; default `MAX_VALUES`. */
  maxValues?: number;
}

const MIB = 1024 * 1024;

/**
 * Limits of one JSON text. The cost of parsing and validating depends on the number of values, not on the length:
 * 50,000 values take less than 100 ms in the worst case, while 4 MiB of `{},` would take 140 ms.
 */
const MAX_VALUES = 50_000;
const MAX_DEPTH = 100;

/** Limits of what is passed on in one turn of the event loop, since receivers process it without a pause. */
const MAX_PART_BYTES = 64 * 1024;
const MAX_PART_ENDS = 32;

/** Total size of incomplete responses in the whole process: 32 of the largest. */
const MAX_BUFFERED_BYTES = 128 * MIB;
let bufferedBytes = 0;

/** A response exceeds its limits and is not read further. The server may or may not have carried out the request. */
export class ResponseTooLargeError extends NamedError {}

export function boundText(bytes: number): string {
  return bytes >= MIB ? `${bytes / MIB} MiB` : `${bytes / 1024} KiB`;
}

const [LF, CR, QUOTE, BACKSLASH, COMMA] = [0x0a, 0x0d, 0x22, 0x5c, 0x2c];
const [OPENING, CLOSING] = [new Set([0x5b, 0x7b]), new Set([0x5d, 0x7d])];

/**
 * Measures JSON texts as their bytes arrive, before anything is parsed. `framing`: where a text ends, at the end of
 * the body, at the end of each line, or at each empty line (server-sent events).
 */
export class ResponseGauge {
  readonly #bounds: ResponseBounds;
  readonly #framing: 'document' | 'lines' | 'events';
  #bytes = 0;
  #values = 0;
  #depth = 0;
  #streamBytes = 0;
  #counted = 0;
  #isInString = false;
  #isEscaped = false;
  #lineBytes = 0;
  #last = 0;

  constructor(bounds: ResponseBounds, framing: 'document' | 'lines' | 'events') {
    this.#bounds = bounds;
    this.#framing = framing;
  }

  /**
   * Measures the beginning of `chunk` and returns how many bytes may be passed on in this turn of the event loop. Lines
   * before one that exceeds the limits are passed on first, so the error is always about the line in which `chunk` begins.
   * @throws ResponseTooLargeError, or an Error if the process has too many bytes of incomplete responses
   */
  take(chunk: Uint8Array): number {
    const end = Math.min(chunk.length, MAX_PART_BYTES);
    let at = 0;
    /** Where the text in progress begins. */
    let begun = 0;
    try {
      for (let ends = 0; at < end && ends < MAX_PART_ENDS; at++) {
        const byte = chunk[at] ?? 0;
        if (byte === LF || byte === CR) {
          // JSON strings contain no line breaks, so a quote outside of JSON cannot hide what follows.
          this.#isInString = false;
          if (this.#endsText(byte)) {
            // It is complete, so it is checked before the counters are reset.
            this.#check();
            this.restart();
            begun = at + 1;
          }
          ends += 1;
          this.#lineBytes = 0;
        } else {
          this.#lineBytes += 1;
          this.#read(byte);
        }
        this.#last = byte;
        this.#bytes += 1;
      }
      this.#streamBytes += at;
      this.#check();
      return at;
    } catch (error) {
      if (begun === 0 || this.#framing !== 'lines') throw error;
      this.restart();
      return begun;
    }
  }

  /** Forgets the text in progress: the next byte begins another. */
  restart(): void {
    this.release();
    this.#bytes = 0;
    this.#values = 0;
    this.#depth = 0;
    this.#isInString = false;
  }

  /** Stops counting the response towards the total of the process. */
  release(): void {
    bufferedBytes -= this.#counted;
    this.#counted = 0;
  }

  #endsText(byte: number): boolean {
    if (this.#framing === 'lines') return byte === LF;
    const isSecondHalf = byte === LF && this.#last === CR;
    return this.#framing === 'events' && this.#lineBytes === 0 && !isSecondHalf;
  }

  #read(byte: number): void {
    if (this.#isInString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (byte === BACKSLASH) this.#isEscaped = true;
      else if (byte === QUOTE) this.#isInString = false;
    } else if (byte === QUOTE) {
      this.#isInString = true;
      this.#isEscaped = false;
    } else if (byte === COMMA) {
      this.#values += 1;
    } else if (OPENING.has(byte)) {
      this.#values += 1;
      this.#depth += 1;
      if (this.#depth > MAX_DEPTH)
        throw new ResponseTooLargeError(`its answer is nested deeper than ${MAX_DEPTH} levels`);
    } else if (CLOSING.has(byte)) {
      this.#depth = Math.max(0, this.#depth - 1);
    }
  }

  #check(): void {
    const { maxBytes, maxStreamBytes = Infinity, maxValues = MAX_VALUES } = this.#bounds;
    const size = this.#bytes > maxBytes ? maxBytes : this.#streamBytes > maxStreamBytes ? maxStreamBytes : undefined;
    if (size !== undefined) throw new ResponseTooLargeError(`its answer is larger than ${boundText(size)}`);
    if (this.#values > maxValues) throw new ResponseTooLargeError(`its answer has more than ${maxValues} values`);
    bufferedBytes += this.#bytes - this.#counted;
    this.#counted = this.#bytes;
    if (bufferedBytes > MAX_BUFFERED_BYTES) throw new Error('too many large answers are being received at once');
  }
}

const overflows = new WeakMap<Response, ResponseTooLargeError>();

/** The error that ended the body of a bounded response, if the body was too large. */
export function overflowOf(response: Response): ResponseTooLargeError | undefined {
  return overflows.get(response);
}

/** Releases responses that are garbage-collected before they were read to the end. */
const dropped = new FinalizationRegistry((gauge: ResponseGauge) => gauge.release());

/** Returns the response with a body that fails, and closes its connection, as soon as it exceeds the bounds. */
export function boundedResponse(response: Response, bounds: ResponseBounds): Response {
  const { body } = response;
  if (!body) return response;
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
  const gauge = new ResponseGauge(bounds, isStream ? 'events' : 'document');
  // Acquired at the first read: undici itself ends a body that was never read.
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  let rest: Uint8Array = new Uint8Array();
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        reader ??= body.getReader();
        try {
          if (rest.length > 0) await nextTurn();
          while (rest.length === 0) {
            const { done, value } = await reader.read();
            // A chunk that was already buffered would otherwise be passed on in the same turn as the previous one.
            await nextTurn();
            if (done) {
              gauge.release();
              controller.close();
              return;
            }
            rest = value;
          }
          const length = gauge.take(rest);
          controller.enqueue(rest.subarray(0, length));
          rest = rest.subarray(length);
        } catch (error) {
          gauge.release();
          if (error instanceof ResponseTooLargeError) overflows.set(response, error);
          reader.cancel(error).catch(() => undefined);
          throw error;
        }
      },
      cancel(reason) {
        gauge.release();
        return reader ? reader.cancel(reason) : body.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  dropped.register(stream, gauge);
  return withBody(response, new Response(stream));
}

/**
 * Gives the response the body of another one, in place: a new Response would lose the URL and rejects some status codes
 * that servers send.
 */
export function withBody(response: Response, other: Response): Response {
  for (const read of ['arrayBuffer', 'blob', 'bytes', 'json', 'text'] as const) {
    Object.defineProperty(response, read, { value: () => other[read](), configurable: true });
  }
  return Object.defineProperties(response, {
    body: { value: other.body, configurable: true },
    bodyUsed: { get: () => other.bodyUsed, configurable: true },
  });
}
