import type { Cipher } from '../encryption/cipher.ts';
import { CatalogError } from './migrate.ts';
import { Store } from './store.ts';

/** The ids and fingerprints of the keys that were used for encryption; never the keys themselves. */
export class EncryptionKeys extends Store {
  /**
   * Records the current key and compares the configured keys with those used before, so that a wrong or missing key is
   * reported at start-up instead of at the first read. Returns the ids of keys that were used and are not configured.
   * @throws CatalogError if keys were used and none is configured, or a different key has the same id
   */
  async register(cipher: Cipher, now: string): Promise<string[]> {
    const configured = cipher.fingerprints();
    const [first] = configured;
    if (first) {
      await this.db
        .insertInto('encryption_keys')
        .values({ ...first, created_at: now })
        .onConflict((conflict) => conflict.column('id').doNothing())
        .execute();
    }
    const known = await this.db.selectFrom('encryption_keys').select(['id', 'fingerprint']).orderBy('id').execute();
    for (const { id, fingerprint } of known) {
      const key = configured.find((one) => one.id === id);
      if (key && key.fingerprint !== fingerprint) {
        throw new CatalogError(
          `the key ${id} in EVERTURN_ENCRYPTION_KEYS is not the key ${id} that encrypted this catalog: ` +
            'restore that key, and give a new key a new id',
        );
      }
    }
    const missing = known.filter(({ id }) => !configured.some((one) => one.id === id)).map(({ id }) => id);
    if (missing.length > 0 && !first) {
      throw new CatalogError(
        `EVERTURN_ENCRYPTION_KEYS is not set, but this catalog was encrypted with ${missing.join(', ')}: ` +
          'set it to these keys or to new ones',
      );
    }
    return missing;
  }
}
