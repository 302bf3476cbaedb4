/** Something that keeps what it could also read again. */
export interface Trimmable {
  /** Forgets what can be read again. Gives how many characters it still keeps. */
  trim: () => number;
}

/** What the feeds of a process keep together, in characters: of each turn that is watched, some of its log. */
const MAX_CHARACTERS = 128 * 1024 * 1024;

/** Bounds what all feeds of a process keep: past it, those that were not used for the longest time are trimmed first. */
export class FeedBudget {
  readonly #max: number;
  /** What each keeps; the one that was used last is last. */
  readonly #kept = new Map<Trimmable, number>();
  #total = 0;

  constructor(max = MAX_CHARACTERS) {
    this.#max = max;
  }

  /** About what all feeds keep. */
  get characters(): number {
    return this.#total;
  }

  /** Notes that a feed is in use, and keeps so many characters. False if all of them are too many, even trimmed. */
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
