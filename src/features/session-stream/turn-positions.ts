import type { TurnRow } from '../../catalog/schema.ts';
import { lockSession } from '../../catalog/sessions.ts';
import { Store } from '../../catalog/store.ts';

declare module '../../catalog/schema.ts' {
  interface TurnsTable {
    /**
     * The turn's position in its session: the number of durable events before it. Null until a reader of the session
     * needs it. It never changes, since the cursors of session streams are counted from it.
     */
    events_before: number | null;
  }
}

/** The largest value of the column on PostgreSQL; a client's cursor may exceed it. */
const MAX_POSITION = 2 ** 31 - 1;

/** A turn with a position among the events of its session. */
export interface PositionedTurn extends TurnRow {
  events_before: number;
}

export interface SessionNews {
  id: string;
  /** The highest position of its turns; null if none has one. */
  lastPosition: number | null;
  /** Whether it has turns or requests without a position. */
  hasUnplaced: boolean;
}

/** The order of the turns of sessions by the number of events before each: see `TurnsTable.events_before`. */
export class TurnPositions extends Store {
  /** The last turn of a session that has at most `position` events before it; by default the last one of all. */
  async lastAt(sessionId: string, position = MAX_POSITION): Promise<PositionedTurn | undefined> {
    return this.#placed(sessionId)
      .where('events_before', '<=', Math.min(position, MAX_POSITION))
      .orderBy('events_before', 'desc')
      .executeTakeFirst();
  }

  /** The first turn of a session that has more than `position` events before it. */
  async firstAfter(sessionId: string, position: number): Promise<PositionedTurn | undefined> {
    return this.#placed(sessionId).where('events_before', '>', position).orderBy('events_before').executeTakeFirst();
  }

  #placed(sessionId: string) {
    return this.db
      .selectFrom('turns')
      .selectAll()
      .where('session_id', '=', sessionId)
      .where('events_before', 'is not', null)
      .$narrowType<{ events_before: number }>()
      .limit(1);
  }

  /** The accepted turns of a session without a position, in order. */
  async unplaced(sessionId: string, limit: number): Promise<TurnRow[]> {
    return (
      this.db
        .selectFrom('turns')
        .selectAll()
        .where('session_id', '=', sessionId)
        .where('events_before', 'is', null)
        .where('sequence', 'is not', null)
        .orderBy('sequence')
        // A session workflow whose state is older than the catalog's assigns some numbers twice.
        .orderBy('created_at')
        .orderBy('id')
        .limit(limit)
        .execute()
    );
  }

  /**
   * Gives positions to the turns after the turn at `last`, or to the first ones if it is undefined. Has no effect if
   * another process has placed a turn since the caller read `last`.
   */
  async place(
    sessionId: string,
    last: number | undefined,
    turns: { id: string; eventsBefore: number }[],
  ): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      // The second of two concurrent processes reads what the first one has written.
      await lockSession(db, { id: sessionId });
      const current = await db
        .selectFrom('turns')
        .select((eb) => eb.fn.max('events_before').as('last'))
        .where('session_id', '=', sessionId)
        .executeTakeFirst();
      if ((current?.last ?? undefined) !== last) return;
      for (const { id, eventsBefore } of turns) {
        await db.updateTable('turns').set({ events_before: eventsBefore }).where('id', '=', id).execute();
      }
    });
  }

  /** The states of sessions, by which waiting readers detect changes; deleted sessions are left out. */
  async news(sessionIds: string[]): Promise<SessionNews[]> {
    const rows = await this.db
      .selectFrom('sessions')
      .select((sessions) => [
        'id',
        sessions
          .selectFrom('turns')
          .select((turns) => turns.fn.max('events_before').as('last'))
          .whereRef('turns.session_id', '=', 'sessions.id')
          .as('last_place'),
        sessions
          .exists(
            sessions
              .selectFrom('turns')
              .select('turns.id')
              .whereRef('turns.session_id', '=', 'sessions.id')
              .where('events_before', 'is', null)
              // A queued turn has no position.
              .where((turns) => turns.or([turns('sequence', 'is not', null), turns('queue_number', 'is', null)])),
          )
          .as('has_unplaced'),
      ])
      .where('id', 'in', sessionIds)
      .where('deleted_at', 'is', null)
      .execute();
    return rows.map(({ id, last_place: lastPosition, has_unplaced: hasUnplaced }) => {
      return { id, lastPosition, hasUnplaced: Boolean(hasUnplaced) };
    });
  }
}
