/** Finds a mark in text that arrives in pieces. */
export class MarkedText {
  readonly #mark: string;
  #held = '';

  constructor(mark: string) {
    this.#mark = mark;
  }

  /** Adds a piece. Returns the text without the mark; an end that may be the beginning of the mark is held back. */
  push(piece: string): { text: string; isMarked: boolean } {
    const all = this.#held + piece;
    const at = all.indexOf(this.#mark);
    if (at >= 0) {
      this.#held = '';
      return { text: all.slice(0, at) + all.slice(at + this.#mark.length), isMarked: true };
    }
    const from = this.#beginOfMark(all);
    this.#held = all.slice(from);
    return { text: all.slice(0, from), isMarked: false };
  }

  /** The text that is held back. */
  rest(): string {
    return this.#held;
  }

  #beginOfMark(text: string): number {
    for (let from = Math.max(0, text.length - this.#mark.length + 1); from < text.length; from++) {
      if (this.#mark.startsWith(text.slice(from))) return from;
    }
    return text.length;
  }
}
