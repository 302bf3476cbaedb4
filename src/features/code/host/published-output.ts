import { appendPart, lengthOf, partsAfter, type OutputPart } from '../../../core/output-parts.ts';
import type { LiveOutput } from '../../../live/bus.ts';
import type { OutputBus } from '../../../live/output-link.ts';
import { cutAt } from '../kernel/cell-output.ts';
import { notice } from './cell-result.ts';

/** The output of a cell is published at most this often, in milliseconds. */
const INTERVAL_MS = 100;

/** The maximum number of parts, one for each change of the channel, in the published output. */
const MAX_PARTS = 1_000;

interface PublishedOutputOptions {
  bus: OutputBus;
  /** The call of the cell. */
  call: Pick<LiveOutput, 'threadId' | 'toolCallId' | 'attempt'>;
  /** The bytes (UTF-8) that the result keeps; only the beginning of longer output is published. */
  maxBytes: number;
}

/** The position of a cell's output for readers. */
type OutputPosition = Pick<LiveOutput, 'turnId' | 'id' | 'after'>;

/** The live output of a running cell for its readers: bounded, and in few messages, whatever the code prints. */
export class PublishedOutput {
  readonly #options: PublishedOutputOptions;
  readonly #parts: OutputPart[] = [];
  #position: OutputPosition;
  #room: number;
  #isFull = false;
  /** The number of characters that were sent to the readers of the turn. */
  #sent = 0;
  #sentAt = -INTERVAL_MS;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: PublishedOutputOptions, position: OutputPosition) {
    this.#options = options;
    this.#position = position;
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

  /** Called when the cell resumes. In another turn, the earlier output is sent to the readers of that turn. */
  resumeIn(position: OutputPosition): void {
    if (position.turnId === this.#position.turnId) return;
    this.#options.bus.finishOutput({ ...this.#position, ...this.#options.call });
    this.#position = position;
    this.#sent = 0;
    this.flush();
  }

  /** Called when the cell has ended. Later output is not published. */
  end(): void {
    this.flush();
    this.#isFull = true;
    this.#options.bus.finishOutput({ ...this.#position, ...this.#options.call });
  }

  /** Sends all pending output, for example when the cell waits. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const parts = partsAfter(this.#parts, this.#sent);
    if (parts.length === 0) return;
    const { bus, call } = this.#options;
    bus.publishOutput({ ...this.#position, ...call, from: this.#sent, parts });
    this.#sent += lengthOf(parts);
    this.#sentAt = performance.now();
  }
}
