import type { Insertable, Kysely, Selectable } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { SessionRequestsTable, SessionRow, Tables } from './schema.ts';

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

  /** Up to `limit` sessions that may be deleted by now, with their last activity. */
  async toDelete(now: string, limit: number): Promise<SessionRow[]> {
    return (
      this.#db
        .selectFrom('session_requests')
        // A cross join, since SQLite keeps its order.
        .crossJoin('sessions')
        .whereRef('sessions.id', '=', 'session_requests.session_id')
        .selectAll('sessions')
        .where('session_requests.delete_at', '<=', now)
        .where('sessions.deleted_at', 'is', null)
        .orderBy('session_requests.delete_at')
        .limit(limit)
        .execute()
    );
  }

  /** Checks a session again later that may be deleted and is active. */
  async postponeDeletion(sessionId: string, { now, until }: { now: string; until: string }): Promise<void> {
    await this.#db
      .updateTable('session_requests')
      .set({ delete_at: until })
      .where('session_id', '=', sessionId)
      .where('delete_at', '<=', now)
      .execute();
  }
}

/** Inserts the request of a new session. */
export async function insertRequest(
  db: Kysely<Tables>,
  cipher: Cipher,
  row: Insertable<SessionRequestsTable>,
): Promise<void> {
  await db
    .insertInto('session_requests')
    .values({
      ...row,
      request: cipher.sealText(row.request, aadFor(row.session_id)),
      first_message: row.first_message ? cipher.sealText(row.first_message, aadForFirstMessage(row.session_id)) : null,
    })
    .execute();
}

/** The additional authenticated data of a first message. */
export function aadForFirstMessage(sessionId: string): string {
  return `session/${sessionId}/first-message`;
}

function aadFor(sessionId: string): string {
  return `session/${sessionId}/request`;
}
