import type { Kysely } from 'kysely';
import type { NewSessionRow, SessionRow, Tables } from './schema.ts';

export class Sessions {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  async get(id: string): Promise<SessionRow | undefined> {
    return this.#db.selectFrom('sessions').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** Does nothing if the session exists: the request that creates it came twice. */
  async insert(session: NewSessionRow): Promise<void> {
    await this.#db
      .insertInto('sessions')
      .values(session)
      .onConflict((conflict) => conflict.column('id').doNothing())
      .execute();
  }

  /** A draft's new spec; without one the draft is only touched. */
  async update(id: string, change: { spec_hash?: string; updated_at: string }): Promise<void> {
    await this.#db.updateTable('sessions').set(change).where('id', '=', id).execute();
  }

  async close(id: string): Promise<void> {
    await this.#db.updateTable('sessions').set({ closed: 1 }).where('id', '=', id).execute();
  }
}
