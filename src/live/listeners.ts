/** The listeners of this process, by the turn or session that they listen to. */
export class Listeners<T> {
  readonly #listeners = new Map<string, Set<T>>();

  /** Returns the unsubscribe function. */
  add(id: string, listener: T): () => void {
    const listeners = this.#listeners.get(id) ?? new Set();
    this.#listeners.set(id, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(id) === listeners) this.#listeners.delete(id);
    };
  }

  of(id: string): Iterable<T> {
    return this.#listeners.get(id) ?? [];
  }
}
