import { setImmediate as nextTurn } from 'node:timers/promises';
import { ResponseGauge } from '../lib/response-bounds.ts';
import { LineReader } from '../lib/line-reader.ts';

/** A line that exceeded the bounds: only its ends were kept. */
export interface CutLine {
  /** Its first and its last 256 bytes. */
  head: string;
  tail: string;
  /** The bound that it exceeds. */
  error: Error;
}

interface MessageLinesOptions {
  /** The size of the largest line. */
  maxBytes: number;
  /** Called with the length of each part before it is read. */
  onBytes: (bytes: number) => void;
  onLine: (line: string) => void;
  /** Called at the end of a line that exceeded the bounds. */
  onCut: (line: CutLine) => void;
}

/** A line that is being dropped. */
interface Cut {
  head: Buffer;
  tail: Buffer;
  error: Error;
}

const KEPT_BYTES = 256;
const LF = 0x0a;

/**
 * Splits the output of a program into lines, the framing of MCP's "stdio". A line that exceeds the bounds of a response
 * is dropped up to its newline without being buffered, and the lines after it are read as before.
 */
export class MessageLines {
  readonly #options: MessageLinesOptions;
  readonly #gauge: ResponseGauge;
  readonly #lines: LineReader;
  #cut: Cut | undefined;

  constructor(options: MessageLinesOptions) {
    this.#options = options;
    this.#gauge = new ResponseGauge({ maxBytes: options.maxBytes }, 'lines');
    this.#lines = new LineReader(Infinity, options.onLine);
  }

  /** Reads a chunk in parts, one part per turn of the event loop. @throws what the callbacks throw */
  async push(chunk: Uint8Array): Promise<void> {
    for (let rest = chunk; rest.length > 0; await nextTurn()) rest = rest.subarray(this.#take(rest));
  }

  /** Stops counting the line in progress towards the total of the process. */
  release(): void {
    this.#gauge.release();
  }

  /** Reads the beginning of a chunk, and returns its length. */
  #take(chunk: Uint8Array): number {
    if (this.#cut) return this.#skip(chunk, this.#cut);
    let length: number;
    try {
      length = this.#gauge.take(chunk);
    } catch (error) {
      this.#gauge.restart();
      const begun = this.#lines.drop();
      this.#cut = { head: begun, tail: begun, error: error instanceof Error ? error : new Error(String(error)) };
      return this.#skip(chunk, this.#cut);
    }
    this.#options.onBytes(length);
    this.#lines.push(chunk.subarray(0, length));
    return length;
  }

  #skip(chunk: Uint8Array, { head, tail, error }: Cut): number {
    const newline = chunk.indexOf(LF);
    const part = newline < 0 ? chunk : chunk.subarray(0, newline);
    const length = newline < 0 ? chunk.length : newline + 1;
    this.#options.onBytes(length);
    const cut = {
      head: Buffer.concat([head.subarray(0, KEPT_BYTES), part.subarray(0, KEPT_BYTES)]).subarray(0, KEPT_BYTES),
      tail: Buffer.concat([tail.subarray(-KEPT_BYTES), part.subarray(-KEPT_BYTES)]).subarray(-KEPT_BYTES),
      error,
    };
    this.#cut = newline < 0 ? cut : undefined;
    if (newline >= 0) this.#options.onCut({ head: cut.head.toString(), tail: cut.tail.toString(), error });
    return length;
  }
}
