/** A cache whose content can be read again. */
interface Trimmable {
  /** Drops everything that can be read again; returns the number of characters that are still kept. */
  trim: () => number;
}

/** The total of all feeds of a process; each keeps a part of its turn's log. */
const MAX_CHARACTERS = 128 * 1024 * 1024;

/** Bounds what all feeds of a process keep: above the bound, the least recently used are trimmed first. */
export class FeedBudget {
  readonly #max: number;
  /** Characters by feed, the most recently used last. */
  readonly #kept = new Map<Trimmable, number>();
  #total = 0;

  constructor(max = MAX_CHARACTERS) {
    this.#max = max;
  }

  /** Approximate total of all feeds. */
  get characters(): number {
    return this.#total;
  }

  /** Records that a feed is in use and keeps `characters`. False if the total is above the bound even after trimming. */
  use(feed: Trimmable, characters: number): boolean {
    this.forget(feed);
    this.#set(feed, characters);
    for (const other of this.#kept.keys()) {
      if (this.#total <= this.#max) return true;
      this.#set(other, other.trim());
    }
    return this.#total <= this.#max;
  }

  forget(feed: Trimmable): void {
    this.#total -= this.#kept.get(feed) ?? 0;
    this.#kept.delete(feed);
  }

  #set(feed: Trimmable, characters: number): void {
    this.#total += characters - (this.#kept.get(feed) ?? 0);
    this.#kept.set(feed, characters);
  }
}
