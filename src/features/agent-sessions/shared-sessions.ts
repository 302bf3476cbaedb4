import { Store } from '../../catalog/store.ts';

/** The sessions that their owners have shared, which are readable without a key. */
export class SharedSessions extends Store {
  async has(sessionId: string): Promise<boolean> {
    const row = await this.db
      .selectFrom('shared_sessions')
      .select('session_id')
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Has no effect on a session that is already shared. */
  async add(sessionId: string, now: string): Promise<void> {
    await this.db
      .insertInto('shared_sessions')
      .values({ session_id: sessionId, shared_at: now })
      .onConflict((conflict) => conflict.column('session_id').doNothing())
      .execute();
  }

  /** Has no effect on a session that is not shared. */
  async remove(sessionId: string): Promise<void> {
    await this.db.deleteFrom('shared_sessions').where('session_id', '=', sessionId).execute();
  }
}
