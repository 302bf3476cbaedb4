import { stripVTControlCharacters } from 'node:util';
import { appendPart, type OutputPart } from '../../../core/output-parts.ts';
import { withoutOpenEnd } from './masked-output.ts';

/** How long output may be collected before it is passed on. */
const FLUSH_MS = 100;
/** This many collected characters are passed on at once. */
const FLUSH_CHARACTERS = 65_536;
/** An escape sequence whose end has not arrived. */
// oxlint-disable-next-line no-control-regex -- it is about control characters
const OPEN_ESCAPE = /\u001B(?:\[[\d;?]{0,64}|\][^\u0007\u001B]{0,512})?$/;

interface CellOutputOptions {
  /** The values of which no beginning may remain where output is cut. */
  hidden?: { readonly values: readonly string[] } | undefined;
  /** Called when output is cut, after the output before the cut was passed on. */
  onCut?: () => void;
}

/** The output of one cell: without escape sequences, bounded, and passed on in pieces as it arrives. */
export class CellOutput {
  readonly #onOutput: (part: OutputPart) => void;
  readonly #options: CellOutputOptions;
  #room: number;
  readonly #parts: OutputPart[] = [];
  #pending: OutputPart | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** The beginnings of escape sequences whose ends have not arrived, by channel. */
  readonly #open = new Map<OutputPart['channel'], string>();
  #bytes = 0;
  #discardedBytes = 0;
  /** Whether output was discarded because of the limit. */
  #isBounded = false;

  /** @param maxBytes of UTF-8; more is counted and discarded */
  constructor(maxBytes: number, onOutput: (part: OutputPart) => void, options: CellOutputOptions = {}) {
    this.#room = maxBytes;
    this.#onOutput = onOutput;
    this.#options = options;
  }

  add(channel: OutputPart['channel'], text: string): void {
    const all = (this.#open.get(channel) ?? '') + text.toWellFormed();
    const open = OPEN_ESCAPE.exec(all)?.[0] ?? '';
    this.#open.set(channel, open);
    this.#append(channel, stripVTControlCharacters(all.slice(0, all.length - open.length)));
  }

  /** Whether further output is discarded. */
  get isFull(): boolean {
    return this.#room === 0;
  }

  /** Called when the rest was cut off: removes a possible beginning of a hidden value from the end. */
  cut(): void {
    this.flush();
    const last = this.#parts.at(-1);
    if (last) last.text = withoutOpenEnd(last.text, this.#options.hidden?.values ?? []);
    this.#options.onCut?.();
  }

  /** Counts output that the kernel has discarded. */
  discard(bytes: number): void {
    this.#discardedBytes += bytes;
  }

  /** The whole output. Nothing may be added afterwards. */
  end(): { parts: OutputPart[]; outputBytes: number; discardedBytes: number } {
    this.flush();
    return {
      parts: this.#parts,
      outputBytes: this.#bytes + this.#discardedBytes,
      discardedBytes: this.#discardedBytes,
    };
  }

  #append(channel: OutputPart['channel'], text: string): void {
    const kept = this.#bounded(text);
    if (kept) this.#collect(channel, kept);
    if (kept === text || this.#isBounded) return;
    this.#isBounded = true;
    this.cut();
  }

  #collect(channel: OutputPart['channel'], kept: string): void {
    if (this.#pending && this.#pending.channel !== channel) this.flush();
    this.#pending = { channel, text: (this.#pending?.text ?? '') + kept };
    if (this.#pending.text.length >= FLUSH_CHARACTERS) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  #bounded(text: string): string {
    const bytes = Buffer.byteLength(text);
    const kept = bytes <= this.#room ? text : cutAt(this.#room, text);
    const keptBytes = bytes <= this.#room ? bytes : Buffer.byteLength(kept);
    this.#room -= keptBytes;
    this.#bytes += keptBytes;
    this.#discardedBytes += bytes - keptBytes;
    // After a cut, nothing of the rest is kept, even if a shorter character would fit.
    if (keptBytes < bytes) this.#room = 0;
    return kept;
  }

  /** Passes on the collected output. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const part = this.#pending;
    this.#pending = undefined;
    if (!part) return;
    appendPart(this.#parts, part);
    this.#onOutput(part);
  }
}

/** The longest beginning of a text that has at most this many bytes. */
export function cutAt(bytes: number, text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(bytes));
  return text.slice(0, read);
}
