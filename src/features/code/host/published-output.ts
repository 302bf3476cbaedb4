import { appendPart, lengthOf, partsAfter, type OutputPart } from '../../../core/output-parts.ts';
import type { LiveOutput } from '../../../live/bus.ts';
import type { OutputBus } from '../../../live/output-link.ts';
import { cutAt } from '../kernel/cell-output.ts';
import { notice } from './cell-result.ts';

/** The output of a cell is published at most this often, in milliseconds. */
const INTERVAL_MS = 100;

/** How often the output that is published may change its channel. */
const MAX_PARTS = 1_000;

interface PublishedOutputOptions {
  bus: OutputBus;
  /** The call of the cell. */
  call: Pick<LiveOutput, 'threadId' | 'toolCallId' | 'attempt'>;
  /** What its result keeps, in bytes of UTF-8; of more, the begin is published. */
  maxBytes: number;
}

/** Where readers find the output of a cell. */
type OutputPosition = Pick<LiveOutput, 'turnId' | 'id' | 'after'>;

/** The output of a cell for its readers while it runs: bounded, and in few messages, whatever the code prints. */
export class PublishedOutput {
  readonly #options: PublishedOutputOptions;
  readonly #parts: OutputPart[] = [];
  #place: OutputPosition;
  #room: number;
  #isFull = false;
  /** How many characters of it the readers of the turn have been sent. */
  #sent = 0;
  #sentAt = -INTERVAL_MS;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: PublishedOutputOptions, place: OutputPosition) {
    this.#options = options;
    this.#place = place;
    this.#room = options.maxBytes;
  }

  add({ channel, text }: OutputPart): void {
    if (this.#isFull) return;
    const bytes = Buffer.byteLength(text);
    const kept = bytes <= this.#room ? text : cutAt(this.#room, text);
    this.#room -= bytes;
    if (kept !== '') appendPart(this.#parts, { channel, text: kept });
    this.#isFull = this.#room < 0 || this.#parts.length >= MAX_PARTS;
    if (this.#isFull)
      appendPart(this.#parts, { channel: 'notice', text: `\n${notice('the rest comes with the result')}\n` });
    const waitMs = this.#sentAt + INTERVAL_MS - performance.now();
    if (waitMs > 0) this.#timer ??= setTimeout(() => this.flush(), waitMs);
    else this.flush();
  }

  /** The cell goes on, maybe in another turn, whose readers are sent what it has written before. */
  goOn(place: OutputPosition): void {
    if (place.turnId === this.#place.turnId) return;
    this.#options.bus.finishOutput({ ...this.#place, ...this.#options.call });
    this.#place = place;
    this.#sent = 0;
    this.flush();
  }

  /** The cell has ended: what it still writes is not published. */
  end(): void {
    this.flush();
    this.#isFull = true;
    this.#options.bus.finishOutput({ ...this.#place, ...this.#options.call });
  }

  /** Sends all of its output, as when the cell waits. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const parts = partsAfter(this.#parts, this.#sent);
    if (parts.length === 0) return;
    const { bus, call } = this.#options;
    bus.publishOutput({ ...this.#place, ...call, from: this.#sent, parts });
    this.#sent += lengthOf(parts);
    this.#sentAt = performance.now();
  }
}
