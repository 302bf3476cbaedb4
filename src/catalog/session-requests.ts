import type { Insertable, Kysely, Selectable } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { Outbox } from './outbox.ts';
import type { SessionRequestsTable, Tables } from './schema.ts';
import { lockSession } from './sessions.ts';
import { sessionCancelled } from './state-changes.ts';

export type SessionRequestRow = Selectable<SessionRequestsTable>;

/** What the sessions of the Agents API v2 were created with. */
export class SessionRequests {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;
  readonly #outbox: Outbox;

  constructor(db: Kysely<Tables>, { cipher, outbox }: { cipher: Cipher; outbox: Outbox }) {
    this.#db = db;
    this.#cipher = cipher;
    this.#outbox = outbox;
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
    await this.#outbox.transaction(async (db, _emit, tell) => {
      await lockSession(db, sessionId);
      const request = await db
        .selectFrom('session_requests')
        .select('cancelled_at')
        .where('session_id', '=', sessionId)
        .executeTakeFirst();
      if (!request) return;
      await db.updateTable('session_requests').set({ cancelled_at: now }).where('session_id', '=', sessionId).execute();
      tell(() => sessionCancelled(db, sessionId, { from: request.cancelled_at, to: now }));
    });
  }
}

function aadFor(sessionId: string): string {
  return `session/${sessionId}/request`;
}
