/** Runs at most `limit` functions at a time for each key; the others wait in first-in, first-out order. */
export class KeyedSemaphore {
  readonly #limit: number;
  readonly #queues = new Map<string, { running: number; waiting: (() => void)[] }>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  async run<T>(key: string, fn: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(key) ?? { running: 0, waiting: [] };
    this.#queues.set(key, queue);
    if (queue.running >= this.#limit) await new Promise<void>((resolve) => queue.waiting.push(resolve));
    else queue.running += 1;
    try {
      return await fn();
    } finally {
      // The slot passes directly to the next in the queue, so that no other caller can take it in between.
      const next = queue.waiting.shift();
      if (next) next();
      else queue.running -= 1;
      if (queue.running === 0) this.#queues.delete(key);
    }
  }
}
