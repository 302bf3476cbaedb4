import type { OutputPart } from '../../../core/output-parts.ts';
import type { HiddenTexts } from './kernel.ts';

/** The characters held back beside four times the longest value: code can write beginnings of values without end. */
const MAX_HELD = 1_024;

/**
 * Output that is masked as it is written: a possible beginning of a hidden value is held back until the rest has
 * arrived, so that the result equals `mask` of the whole output.
 */
export class MaskedOutput {
  readonly #hidden: HiddenTexts;
  readonly #onOutput: (part: OutputPart) => void;
  #held: OutputPart | undefined;

  constructor(hidden: HiddenTexts, onOutput: (part: OutputPart) => void) {
    this.#hidden = hidden;
    this.#onOutput = onOutput;
  }

  add({ channel, text }: OutputPart): void {
    if (this.#held?.channel !== channel) this.flush();
    const all = (this.#held?.text ?? '') + text;
    const shown = openFrom(all, this.#hidden.values);
    this.#held = shown < all.length ? { channel, text: all.slice(shown) } : undefined;
    this.#pass({ channel, text: all.slice(0, shown) });
  }

  /** Called when the rest was cut off: drops the held back text, which may be the beginning of a value. */
  cut(): void {
    this.#held = undefined;
  }

  /** Passes on the held back text when no output follows. */
  flush(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held) this.#pass(held);
  }

  #pass({ channel, text }: OutputPart): void {
    if (text !== '') this.#onOutput({ channel, text: this.#hidden.mask(text) });
  }
}

/** A text that was cut, without a possible beginning of one of the values at its end. */
export function withoutOpenEnd(text: string, values: readonly string[]): string {
  return text.slice(0, openFrom(text, values));
}

/**
 * The index from which the end of a text may be the beginning of one of the values, without splitting a complete value;
 * the length of the text if this end is too long to be held back.
 */
function openFrom(text: string, values: readonly string[]): number {
  const max = MAX_HELD + 4 * Math.max(0, ...values.map(({ length }) => length));
  let from = Math.min(...values.map((value) => text.length - openPrefixLength(text, value)), text.length);
  for (let before = Infinity; from < before;) {
    if (text.length - from > max) return text.length;
    before = from;
    for (const value of values) {
      const near = Math.max(0, from - value.length + 1);
      const at = text.slice(near, from + value.length - 1).indexOf(value);
      if (at !== -1) from = near + at;
    }
  }
  return from;
}

/** The length of the longest end of a text that is a proper prefix of the value. */
function openPrefixLength(text: string, value: string): number {
  for (let length = Math.min(text.length, value.length - 1); length > 0; length -= 1) {
    if (text.endsWith(value.slice(0, length))) return length;
  }
  return 0;
}
