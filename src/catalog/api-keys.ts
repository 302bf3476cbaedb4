import type { KeyRow, NewKeyRow } from './schema.ts';
import { Store } from './store.ts';

/** API keys created by `everturn keys create`. Revoked keys are kept as a record of who had access, and until when. */
export class Keys extends Store {
  async insert(key: NewKeyRow): Promise<void> {
    await this.db.insertInto('api_keys').values(key).execute();
  }

  /** The keys with these hashes; unknown hashes are left out. */
  async findAll(hashes: string[]): Promise<KeyRow[]> {
    return this.db.selectFrom('api_keys').selectAll().where('hash', 'in', hashes).execute();
  }

  /** All keys, oldest first. */
  async list(): Promise<KeyRow[]> {
    return this.db.selectFrom('api_keys').selectAll().orderBy('id').execute();
  }

  async get(id: string): Promise<KeyRow | undefined> {
    return this.db.selectFrom('api_keys').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** Whether any key exists, revoked ones included. */
  async any(): Promise<boolean> {
    const row = await this.db.selectFrom('api_keys').select('id').limit(1).executeTakeFirst();
    return row !== undefined;
  }

  /** Revokes a key; a key that is already revoked keeps its time. Undefined if there is no key with this id. */
  async revoke(id: string, now: string): Promise<KeyRow | undefined> {
    await this.db
      .updateTable('api_keys')
      .set({ revoked_at: now })
      .where('id', '=', id)
      .where('revoked_at', 'is', null)
      .execute();
    return this.get(id);
  }

  /** Records that a key was used, unless a use was recorded at `notSince` or later. */
  async recordUse(id: string, now: string, notSince: string): Promise<void> {
    await this.db
      .updateTable('api_keys')
      .set({ last_used_at: now })
      .where('id', '=', id)
      .where((eb) => eb.or([eb('last_used_at', 'is', null), eb('last_used_at', '<', notSince)]))
      .execute();
  }
}
