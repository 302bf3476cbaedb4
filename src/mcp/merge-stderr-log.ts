import type { Logger } from 'pino';
import { LineReader } from '../lib/line-reader.ts';

const MAX_LINE_BYTES = 2_000;
const MAX_LINES = 100;
const WINDOW_MS = 10_000;

/** Passes on to our log what a program says on its standard error: 100 lines in 10 s, and how many more there were. */
export class StderrLog {
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #lines = new LineReader(MAX_LINE_BYTES, (line, isWhole) => this.#line(isWhole ? line : `${line}…`));
  #windowEnd = -Infinity;
  #count = 0;

  /** `now`: milliseconds that never run backwards. */
  constructor(log: Logger, now: () => number) {
    this.#log = log;
    this.#now = now;
  }

  push(chunk: Buffer): void {
    this.#lines.push(chunk);
  }

  end(): void {
    this.#lines.end();
    this.#reportOmitted();
  }

  #line(line: string): void {
    if (this.#now() >= this.#windowEnd) {
      this.#reportOmitted();
      this.#windowEnd = this.#now() + WINDOW_MS;
      this.#count = 0;
    }
    this.#count += 1;
    if (this.#count <= MAX_LINES) this.#log.info(line);
  }

  #reportOmitted(): void {
    const omitted = this.#count - MAX_LINES;
    if (omitted > 0) this.#log.warn(`${omitted} more lines were left out`);
    this.#count = 0;
  }
}
