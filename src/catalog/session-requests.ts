import type { Insertable, Kysely, Selectable } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { SessionRequestsTable, Tables } from './schema.ts';

export type SessionRequestRow = Selectable<SessionRequestsTable>;

/** What the sessions of the Agents API v2 were created with. */
export class SessionRequests {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  async get(sessionId: string): Promise<SessionRequestRow | undefined> {
    const row = await this.#db
      .selectFrom('session_requests')
      .selectAll()
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    return row && { ...row, request: this.#cipher.openText(row.request, aadFor(row.session_id)) };
  }

  /** Does nothing if the session has a request: its creation is repeated. */
  async insert(row: Insertable<SessionRequestsTable>): Promise<void> {
    await this.#db
      .insertInto('session_requests')
      .values({ ...row, request: this.#cipher.sealText(row.request, aadFor(row.session_id)) })
      .onConflict((conflict) => conflict.column('session_id').doNothing())
      .execute();
  }

  /** Notes that a session was cancelled. Without effect on one that was created through another API. */
  async cancel(sessionId: string, now: string): Promise<void> {
    await this.#db
      .updateTable('session_requests')
      .set({ cancelled_at: now })
      .where('session_id', '=', sessionId)
      .execute();
  }
}

function aadFor(sessionId: string): string {
  return `session/${sessionId}/request`;
}
