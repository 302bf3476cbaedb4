import type { Insertable, Kysely, Selectable } from 'kysely';
import type { Cipher } from '../../encryption/cipher.ts';
import type { SessionRequestsTable, SessionRow, Tables } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';

export type SessionRequestRow = Selectable<SessionRequestsTable>;

/** The number of characters of a session's first message that a list contains. */
export const LISTED_CHARACTERS = 4_000;

const MAX_CHILDREN = 1_000;

/** The requests that created the sessions of the Agents API v2, also the sessions of delegates. */
export class SessionRequests extends Store {
  async get(sessionId: string): Promise<SessionRequestRow | undefined> {
    const row = await this.db
      .selectFrom('session_requests')
      .selectAll()
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    if (!row || row.request === null) return row;
    return { ...row, request: this.cipher.openText(row.request, aadFor(row.session_id)) };
  }

  /** The children of a session, oldest first: at most the first `MAX_CHILDREN`. */
  async childrenOf(sessionId: string): Promise<string[]> {
    const rows = await this.db
      .selectFrom('session_requests')
      .innerJoin('sessions', 'sessions.id', 'session_requests.session_id')
      .select('sessions.id')
      .where('session_requests.parent_session_id', '=', sessionId)
      .where('sessions.deleted_at', 'is', null)
      // Ids begin with the time.
      .orderBy('session_requests.session_id')
      .limit(MAX_CHILDREN)
      .execute();
    return rows.map(({ id }) => id);
  }

  /** Up to `limit` sessions that may be deleted now, with their last activity. */
  async toDelete(now: string, limit: number): Promise<SessionRow[]> {
    return (
      this.db
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

  /** Postpones the deletion of a session that is still active. */
  async postponeDeletion(sessionId: string, { now, until }: { now: string; until: string }): Promise<void> {
    await this.db
      .updateTable('session_requests')
      .set({ delete_at: until })
      .where('session_id', '=', sessionId)
      .where('delete_at', '<=', now)
      .execute();
  }
}

/** Inserts the request of a new session, with the beginning of its first message. */
export async function insertRequest(
  db: Kysely<Tables>,
  cipher: Cipher,
  row: Insertable<SessionRequestsTable>,
): Promise<void> {
  const { session_id: id, request, first_message: message } = row;
  await db
    .insertInto('session_requests')
    .values({
      ...row,
      request: typeof request === 'string' ? cipher.sealText(request, aadFor(id)) : null,
      first_message:
        typeof message === 'string'
          ? cipher.sealText(message.slice(0, LISTED_CHARACTERS), aadForFirstMessage(id))
          : null,
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
