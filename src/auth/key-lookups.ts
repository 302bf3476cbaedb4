import type { Catalog } from '../catalog/catalog.ts';
import type { KeyRow } from '../catalog/schema.ts';

/** Hashes in one query. */
const MAX_BATCH = 1_000;

/**
 * Looks keys up in the catalog, one query at a time: the keys that arrive while it runs share the next query. Keys are
 * looked up before their sender is known, so a flood of wrong ones must not take all connections to the database.
 */
export class KeyLookups {
  readonly #keys: Pick<Catalog['keys'], 'findAll'>;
  readonly #waiting = new Map<string, PromiseWithResolvers<KeyRow | undefined>>();
  #isRunning = false;

  constructor(keys: Pick<Catalog['keys'], 'findAll'>) {
    this.#keys = keys;
  }

  /** Never answers with what was read before it was asked. */
  async find(hash: string): Promise<KeyRow | undefined> {
    const lookup = this.#waiting.get(hash) ?? Promise.withResolvers();
    this.#waiting.set(hash, lookup);
    if (!this.#isRunning) void this.#run();
    return lookup.promise;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.size > 0) {
      const batch = new Map([...this.#waiting].slice(0, MAX_BATCH));
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
