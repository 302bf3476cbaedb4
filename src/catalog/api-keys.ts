import type { Kysely } from 'kysely';
import type { KeyRow, NewKeyRow, Tables } from './schema.ts';

/** API keys that were made by command. Revoked ones stay: they show that there was a key, and when it was used. */
export class Keys {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  async insert(key: NewKeyRow): Promise<void> {
    await this.#db.insertInto('api_keys').values(key).execute();
  }

  /** Those of the keys that exist. */
  async findAll(hashes: string[]): Promise<KeyRow[]> {
    return this.#db.selectFrom('api_keys').selectAll().where('hash', 'in', hashes).execute();
  }

  /** All keys, the oldest first. */
  async list(): Promise<KeyRow[]> {
    return this.#db.selectFrom('api_keys').selectAll().orderBy('id').execute();
  }

  /** Whether there is any key, or has been. */
  async any(): Promise<boolean> {
    const row = await this.#db.selectFrom('api_keys').select('id').limit(1).executeTakeFirst();
    return row !== undefined;
  }

  /** Ends a key; one that has been revoked before stays as it is. Undefined if there is none of that id. */
  async revoke(id: string, now: string): Promise<KeyRow | undefined> {
    await this.#db
      .updateTable('api_keys')
      .set({ revoked_at: now })
      .where('id', '=', id)
      .where('revoked_at', 'is', null)
      .execute();
    return this.#db.selectFrom('api_keys').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** Notes that a key was used, unless somebody has noted that since `notSince`. */
  async recordUse(id: string, now: string, notSince: string): Promise<void> {
    await this.#db
      .updateTable('api_keys')
      .set({ last_used_at: now })
      .where('id', '=', id)
      .where((eb) => eb.or([eb('last_used_at', 'is', null), eb('last_used_at', '<', notSince)]))
      .execute();
  }
}
