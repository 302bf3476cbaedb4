import { setImmediate as nextTurn } from 'node:timers/promises';

/** How much others may answer, in unpacked bytes. */
export interface AnswerBounds {
  /** Of what is parsed at once: a whole answer, or an event of an event stream. */
  maxBytes: number;
  /** Of an event stream in all; without it a stream may go on for as long as its connection lives. */
  maxStreamBytes?: number;
}

const MIB = 1024 * 1024;

/**
 * The bounds of one JSON text. The number of its values, not its length, decides what parsing and checking it costs: with
 * 50,000 of them this takes less than 100 ms for the least favourable texts, and 4 MiB of `{},` without this bound 140 ms.
 */
const MAX_VALUES = 50_000;
const MAX_DEPTH = 100;

/** What is handed on in one turn of the event loop: its receivers work on it without a pause. */
const MAX_PART_BYTES = 64 * 1024;
const MAX_PART_ENDS = 32;

/** Of answers whose end has not come, in the whole process: 32 of the largest. */
const MAX_HELD_BYTES = 128 * MIB;
let heldBytes = 0;

/** An answer that is not read any further. It says nothing of whether the server has done what it was asked. */
export class AnswerTooLargeError extends Error {
  static {
    this.prototype.name = 'AnswerTooLargeError';
  }
}

export function sizeText(bytes: number): string {
  return bytes >= MIB ? `${bytes / MIB} MiB` : `${bytes / 1024} KiB`;
}

const [LF, CR, QUOTE, BACKSLASH, COMMA] = [0x0a, 0x0d, 0x22, 0x5c, 0x2c];
const [OPENING, CLOSING] = [new Set([0x5b, 0x7b]), new Set([0x5d, 0x7d])];

/**
 * Measures JSON texts as their bytes come in, before anything is parsed. `framing` says where one text ends and the next
 * begins: nowhere, at the end of each line, or at each empty line (server-sent events).
 */
export class AnswerGauge {
  readonly #bounds: AnswerBounds;
  readonly #framing: 'document' | 'lines' | 'events';
  #bytes = 0;
  #values = 0;
  #depth = 0;
  #streamBytes = 0;
  #held = 0;
  #isInString = false;
  #isEscaped = false;
  #lineBytes = 0;
  #last = 0;

  constructor(bounds: AnswerBounds, framing: 'document' | 'lines' | 'events') {
    this.#bounds = bounds;
    this.#framing = framing;
  }

  /**
   * Takes bytes in from the beginning of `chunk`, and gives how many: what may be handed on in one turn of the loop.
   * @throws AnswerTooLargeError, or an error when this process holds too much of all answers.
   */
  take(chunk: Uint8Array): number {
    const end = Math.min(chunk.length, MAX_PART_BYTES);
    let at = 0;
    for (let ends = 0; at < end && ends < MAX_PART_ENDS; at++) {
      const byte = chunk[at] ?? 0;
      if (byte === LF || byte === CR) {
        // JSON has no line breaks in strings, so no text outside of JSON can hide what follows.
        this.#isInString = false;
        if (this.#endsText(byte)) this.#begin();
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
  }

  /** Nothing of the answer is held any longer. */
  release(): void {
    heldBytes -= this.#held;
    this.#held = 0;
  }

  #endsText(byte: number): boolean {
    if (this.#framing === 'lines') return byte === LF;
    const isSecondHalf = byte === LF && this.#last === CR;
    return this.#framing === 'events' && this.#lineBytes === 0 && !isSecondHalf;
  }

  #begin(): void {
    // A text that ends in this part has been taken in whole, so it is judged before the next one begins.
    this.#check();
    this.#bytes = 0;
    this.#values = 0;
    this.#depth = 0;
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
        throw new AnswerTooLargeError(`its answer is nested deeper than ${MAX_DEPTH} levels`);
    } else if (CLOSING.has(byte)) {
      this.#depth = Math.max(0, this.#depth - 1);
    }
  }

  #check(): void {
    const { maxBytes, maxStreamBytes = Infinity } = this.#bounds;
    const size = this.#bytes > maxBytes ? maxBytes : this.#streamBytes > maxStreamBytes ? maxStreamBytes : undefined;
    if (size !== undefined) throw new AnswerTooLargeError(`its answer is larger than ${sizeText(size)}`);
    if (this.#values > MAX_VALUES) throw new AnswerTooLargeError(`its answer has more than ${MAX_VALUES} values`);
    heldBytes += this.#bytes - this.#held;
    this.#held = this.#bytes;
    if (heldBytes > MAX_HELD_BYTES) throw new Error('too many large answers are being received at once');
  }
}

/** Gives `chunk` to `use` in parts, each in a turn of the event loop of its own. */
export async function inParts(chunk: Uint8Array, gauge: AnswerGauge, use: (part: Uint8Array) => void): Promise<void> {
  for (let rest = chunk; rest.length > 0;) {
    const length = gauge.take(rest);
    use(rest.subarray(0, length));
    rest = rest.subarray(length);
    await nextTurn();
  }
}

const overflows = new WeakMap<Response, AnswerTooLargeError>();

/** Why the body of a bounded answer broke off, if it was too large. */
export function overflowOf(response: Response): AnswerTooLargeError | undefined {
  return overflows.get(response);
}

/** Answers that are dropped without being read to their end. */
const dropped = new FinalizationRegistry((gauge: AnswerGauge) => gauge.release());

/** The same response, whose body fails as soon as it exceeds the bounds, with the connection behind it cut. */
export function boundedResponse(response: Response, bounds: AnswerBounds): Response {
  const { body } = response;
  if (!body) return response;
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
  const gauge = new AnswerGauge(bounds, isStream ? 'events' : 'document');
  // Not before it is read: undici ends what nobody has begun to read.
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
            // A chunk that lay ready would go out in the same turn as the one before.
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
          if (error instanceof AnswerTooLargeError) overflows.set(response, error);
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

/** A new response would lose the URL, and can not have every status that a server may send. */
function withBody(response: Response, bounded: Response): Response {
  for (const read of ['arrayBuffer', 'blob', 'bytes', 'json', 'text'] as const) {
    Object.defineProperty(response, read, { value: () => bounded[read](), configurable: true });
  }
  return Object.defineProperties(response, {
    body: { value: bounded.body },
    bodyUsed: { get: () => bounded.bodyUsed },
  });
}
