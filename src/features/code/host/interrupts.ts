import { LRUCache } from 'lru-cache';
import { linkSignal } from '../../../lib/abort.ts';

/** How many interrupts are kept for work that has not begun; an interrupt after the end of its work remains, too. */
const MAX_EARLY = 1_000;

/** Work that clients interrupt while it runs, or before it begins. */
export class Interrupts {
  readonly #running = new Map<string, AbortController>();
  readonly #early = new LRUCache<string, true>({ max: MAX_EARLY });

  /** Runs work under a key that no other work has then. An interrupt or an abort of `parent` aborts the controller. */
  async during<T>(key: string, parent: AbortSignal, controller: AbortController, work: () => Promise<T>): Promise<T> {
    const unlink = linkSignal(parent, controller);
    this.#running.set(key, controller);
    if (this.#early.delete(key)) this.interrupt(key);
    try {
      return await work();
    } finally {
      unlink();
      this.#running.delete(key);
    }
  }

  interrupt(key: string): void {
    const controller = this.#running.get(key);
    if (controller) controller.abort();
    else this.#early.set(key, true);
  }
}
