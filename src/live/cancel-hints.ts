/** The listeners for the cancel hints of turns in this process. */
export class CancelHints {
  readonly #listeners = new Map<string, Set<() => void>>();

  on(turnId: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(turnId) ?? new Set();
    this.#listeners.set(turnId, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(turnId) === listeners) this.#listeners.delete(turnId);
    };
  }

  deliver(turnId: string): void {
    for (const listener of this.#listeners.get(turnId) ?? []) listener();
  }
}
