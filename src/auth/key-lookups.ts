import type { KernelCatalog } from '../catalog/catalog.ts';
import type { KeyRow } from '../catalog/schema.ts';

/** Maximum hashes per query. */
const HASH_BATCH_SIZE = 1_000;

/**
 * Looks keys up in the catalog with one query at a time; keys that arrive while it runs share the next query. A key is
 * looked up before its sender is authenticated, so a flood of unknown keys must not occupy all database connections.
 */
export class KeyLookups {
  readonly #keys: Pick<KernelCatalog['keys'], 'findAll'>;
  readonly #waiting = new Map<string, PromiseWithResolvers<KeyRow | undefined>>();
  #isRunning = false;

  constructor(keys: Pick<KernelCatalog['keys'], 'findAll'>) {
    this.#keys = keys;
  }

  /** Reads the key after the call, never from a query that was already running. */
  async find(hash: string): Promise<KeyRow | undefined> {
    const lookup = this.#waiting.get(hash) ?? Promise.withResolvers();
    this.#waiting.set(hash, lookup);
    if (!this.#isRunning) void this.#run();
    return lookup.promise;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.size > 0) {
      const batch = new Map([...this.#waiting].slice(0, HASH_BATCH_SIZE));
      for (const hash of batch.keys()) this.#waiting.delete(hash);
      try {
        const rows = await this.#keys.findAll([...batch.keys()]);
        const found = new Map(rows.map((row) => [row.hash, row]));
        for (const [hash, lookup] of batch) lookup.resolve(found.get(hash));
      } catch (error) {
        for (const lookup of batch.values()) lookup.reject(error);
      }
    }
    this.#isRunning = false;
  }
}
