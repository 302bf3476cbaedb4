import type { NewRecord } from '../../../core/records/log.ts';
import type { ModelMessage } from '../../../core/records/message.ts';
import { linkSignal } from '../../../lib/abort.ts';

/** The number of direct calls after which a piece of a cell ends: its records are in one payload of Temporal. */
const MAX_CALLS = 50;

/** The size in JSON of their records after which a piece ends. */
const MAX_BYTES = 96 * 1024;

/** The time since the first direct call after which a piece ends: readers see the calls at the end of the piece. */
const MAX_MS = 4_000;

/** The time that running direct calls have left after `MAX_MS`, before they are aborted. */
const LAST_MS = 1_000;

/** The maximum JSON of all records of a piece, without longer strings, which can be moved into the blob store. */
const MAX_FIXED_BYTES = 96 * 1024;
const MIN_MOVED = 1_024;

/** The part of a cell between two returns to its turn. */
export class Piece {
  /** The records of the piece, before the records of its end. */
  readonly records: NewRecord[] = [];
  readonly #over = Promise.withResolvers<undefined>();
  /** Resolves when the piece has to end although the code continues. */
  readonly over = this.#over.promise;
  readonly #stop: AbortSignal;
  readonly #controller = new AbortController();
  readonly #unlink: () => void;
  readonly #callsUntilMs: number;
  #isOver = false;
  #calls = 0;
  #bytes = 0;
  #fixedBytes = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param stop ends the code
   * @param callsUntilMs the time from which the turn has no time left for another call: milliseconds since 1970
   */
  constructor(stop: AbortSignal, callsUntilMs = Infinity) {
    this.#stop = stop;
    this.#unlink = linkSignal(stop, this.#controller);
    this.#callsUntilMs = callsUntilMs;
  }

  /** Aborts the calls that the host runs itself. */
  get ending(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether the host may begin a call itself. */
  get mayCall(): boolean {
    return !this.#isOver && !this.#stop.aborted && Date.now() < this.#callsUntilMs;
  }

  /** Called when direct calls begin. */
  begin(): void {
    this.#timer ??= setTimeout(() => {
      this.#finish();
      this.#timer = setTimeout(() => this.#controller.abort(), LAST_MS).unref();
    }, MAX_MS).unref();
  }

  /** Adds a message whose calls have ended, with their results. */
  add(records: [ModelMessage, ...NewRecord[]]): void {
    this.records.push(...records);
    this.#calls += records[0].toolCalls.length;
    this.#bytes += Buffer.byteLength(JSON.stringify(records));
    this.#fixedBytes += fixedBytes(records);
    if (this.#calls >= MAX_CALLS || this.#bytes >= MAX_BYTES) this.#finish();
  }

  /** Whether these records fit into the piece. */
  fits(records: NewRecord[]): boolean {
    return this.#fixedBytes + fixedBytes(records) <= MAX_FIXED_BYTES;
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#unlink();
  }

  #finish(): void {
    // If the code was stopped, it ends with this piece.
    if (this.#stop.aborted) return;
    this.#isOver = true;
    this.#over.resolve(undefined);
  }
}

function fixedBytes(records: readonly NewRecord[]): number {
  const json = JSON.stringify(records, (_, value: unknown) =>
    typeof value === 'string' && value.length >= MIN_MOVED ? value.slice(0, MIN_MOVED / 8) : value,
  );
  return Buffer.byteLength(json);
}
