import { LRUCache } from 'lru-cache';
import { linkSignal } from '../../../lib/abort.ts';

/** How many interrupts are kept for what has not begun; one that has ended before its interrupt leaves one behind. */
const MAX_EARLY = 1_000;

/** What clients interrupt while it runs, or before it begins. */
export class Interrupts {
  readonly #running = new Map<string, AbortController>();
  readonly #early = new LRUCache<string, true>({ max: MAX_EARLY });

  /** Runs work under a key, which no other has then. An interrupt, or the end of `parent`, aborts the controller. */
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
