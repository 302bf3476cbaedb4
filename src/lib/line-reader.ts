const NEWLINE = 0x0a;

/** Splits a stream of bytes into lines, in time linear in their length however the chunks are cut. */
export class LineReader {
  readonly #maxBytes: number;
  readonly #onLine: (line: string, isWhole: boolean) => void;
  #parts: Uint8Array[] = [];
  #bytes = 0;

  /** A line longer than `maxBytes` is reported truncated to that, with `isWhole` false. */
  constructor(maxBytes: number, onLine: (line: string, isWhole: boolean) => void) {
    this.#maxBytes = maxBytes;
    this.#onLine = onLine;
  }

  push(chunk: Uint8Array): void {
    let from = 0;
    for (let to = chunk.indexOf(NEWLINE); to >= 0; to = chunk.indexOf(NEWLINE, from)) {
      this.#add(chunk.subarray(from, to));
      this.end();
      from = to + 1;
    }
    this.#add(chunk.subarray(from));
  }

  /** Reports the text after the last newline, if any. */
  end(): void {
    const isWhole = this.#bytes <= this.#maxBytes;
    const line = this.drop().toString().replace(/\r$/, '');
    if (line) this.#onLine(line, isWhole);
  }

  /** Takes the bytes after the last newline without reporting them. */
  drop(): Buffer {
    const dropped = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#bytes = 0;
    return dropped;
  }

  #add(part: Uint8Array): void {
    const room = this.#maxBytes - this.#bytes;
    if (room > 0) this.#parts.push(part.subarray(0, room));
    this.#bytes += part.length;
  }
}
