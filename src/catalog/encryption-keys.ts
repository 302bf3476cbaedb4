import type { Kysely } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import { CatalogError } from './migrate.ts';
import type { Tables } from './schema.ts';

/** The keys under which something was encrypted: not they themselves, but what they are known by. */
export class EncryptionKeys {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  /**
   * Notes the key that is used from now on, and finds out what would be noticed much later otherwise. Gives the ids of keys
   * that were in use once and are not there.
   * @throws CatalogError if there are no keys any more, or another one under the same id
   */
  async register(cipher: Cipher, now: string): Promise<string[]> {
    const here = cipher.fingerprints();
    const [first] = here;
    if (first) {
      await this.#db
        .insertInto('encryption_keys')
        .values({ ...first, created_at: now })
        .onConflict((conflict) => conflict.column('id').doNothing())
        .execute();
    }
    const known = await this.#db.selectFrom('encryption_keys').select(['id', 'fingerprint']).orderBy('id').execute();
    for (const { id, fingerprint } of known) {
      const key = here.find((one) => one.id === id);
      if (key && key.fingerprint !== fingerprint) {
        throw new CatalogError(
          `EVERTURN_ENCRYPTION_KEYS has another key under the id ${id} than the one under which this catalog was ` +
            'encrypted: put that one back, and give a new key a new id',
        );
      }
    }
    const missing = known.filter(({ id }) => !here.some((one) => one.id === id)).map(({ id }) => id);
    if (missing.length > 0 && !first) {
      throw new CatalogError(
        `EVERTURN_ENCRYPTION_KEYS is not set, and this catalog was encrypted under ${missing.join(', ')}: ` +
          'set it, to these keys or to new ones',
      );
    }
    return missing;
  }
}
