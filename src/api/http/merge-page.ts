/** More JSON than this is not sent at once; the rest is for the next page. */
const MAX_PAGE_LENGTH = 8_000_000;

/** A page of a listing as it fills: up to a number of items, and up to a length, but at least one item. */
export class Page<T> {
  readonly items: T[] = [];
  readonly #limit: number;
  #length = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** False if the page is full: the item is the first of the next one. */
  add(item: T): boolean {
    if (this.items.length === this.#limit) return false;
    const { length } = JSON.stringify(item);
    if (this.items.length > 0 && this.#length + length > MAX_PAGE_LENGTH) return false;
    this.items.push(item);
    this.#length += length;
    return true;
  }
}
