/** The listeners of this process, by the turn or topic that they listen to. */
export class Listeners<K extends string, T> {
  readonly #listeners = new Map<K, Set<T>>();

  /** Returns the unsubscribe function. */
  add(key: K, listener: T): () => void {
    const listeners = this.#listeners.get(key) ?? new Set();
    this.#listeners.set(key, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(key) === listeners) this.#listeners.delete(key);
    };
  }

  of(key: K): Iterable<T> {
    return this.#listeners.get(key) ?? [];
  }
}
