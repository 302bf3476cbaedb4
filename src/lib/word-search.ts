interface Range {
  start: number;
  end: number;
}

/**
 * Finds words in a text with the Aho-Corasick algorithm, in time linear in the length of the text for any words. A regular
 * expression of long words takes minutes for a text that is made for it.
 */
export class WordSearch {
  /** The next states, by state and UTF-16 code unit. State 0 is the beginning of all words. */
  readonly #next = new Map<number, number>();
  /** By state, where the search continues if no word does. */
  readonly #fallback = [0];
  /** By state, the length of the longest word that ends there. */
  readonly #length = [0];
  /** Whether a word begins with a code unit that ends with this byte: most of a text has none. */
  readonly #begins = new Uint8Array(256);

  constructor(words: Iterable<string>) {
    // By depth, since fallbacks lead to states of words that are shorter.
    let open = [...words].map((word) => ({ word, state: 0 }));
    for (const { word } of open) this.#begins[word.charCodeAt(0) & 0xff] = 1;
    for (let depth = 0; open.length > 0; depth++) {
      open = open.filter(({ word }) => word.length > depth);
      for (const one of open) {
        one.state = this.#child(one.state, one.word.charCodeAt(depth));
        if (one.word.length === depth + 1) this.#length[one.state] = depth + 1;
      }
    }
  }

  /** The text with `replacement` for each of the words; those that overlap are replaced together. */
  replace(text: string, replacement: string): string {
    const found: Range[] = [];
    for (let i = 0, state = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (state === 0 && !this.#begins[code & 0xff]) continue;
      state = this.#step(state, code);
      const length = this.#length[state] ?? 0;
      if (length > 0) add(found, { start: i + 1 - length, end: i + 1 });
    }
    const ends = [0, ...found.map(({ end }) => end)];
    return ends.map((end, i) => text.slice(end, found[i]?.start)).join(replacement);
  }

  #child(state: number, code: number): number {
    const key = keyOf(state, code);
    const known = this.#next.get(key);
    if (known !== undefined) return known;
    const child = this.#fallback.length;
    const fallback = state === 0 ? 0 : this.#step(this.#fallback[state] ?? 0, code);
    this.#next.set(key, child);
    this.#fallback.push(fallback);
    this.#length.push(this.#length[fallback] ?? 0);
    return child;
  }

  #step(from: number, code: number): number {
    for (let state = from; ; state = this.#fallback[state] ?? 0) {
      const next = this.#next.get(keyOf(state, code));
      if (next !== undefined || state === 0) return next ?? 0;
    }
  }
}

/** Adds a range that ends after all others. */
function add(ranges: Range[], { start, end }: Range): void {
  let last = ranges.at(-1);
  while (last && last.start >= start) {
    ranges.pop();
    last = ranges.at(-1);
  }
  if (last && last.end > start) last.end = end;
  else ranges.push({ start, end });
}

function keyOf(state: number, code: number): number {
  return state * 0x1_0000 + code;
}
