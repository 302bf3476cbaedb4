/** The listeners of this process, by turn. */
export class TurnListeners<T> {
  readonly #listeners = new Map<string, Set<T>>();

  /** Returns the unsubscribe function. */
  add(turnId: string, listener: T): () => void {
    const listeners = this.#listeners.get(turnId) ?? new Set();
    this.#listeners.set(turnId, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(turnId) === listeners) this.#listeners.delete(turnId);
    };
  }

  of(turnId: string): Iterable<T> {
    return this.#listeners.get(turnId) ?? [];
  }
}
