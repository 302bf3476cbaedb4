import { sql } from 'kysely';
import type { SessionState, TurnState } from '../core/session-state.ts';
import type { SessionReading } from './log-reader.ts';
import { sessionChanged } from './session-states.ts';
import { lockSession } from './sessions.ts';
import { Store } from './store.ts';

/** What is derived for a session from the log of its last turn, if that has ended. */
export interface DerivedRows extends SessionReading {
  last?: { turnId: string; leaves: SessionState; at: string };
  /** The state of the last turn, if it has not ended. */
  open?: { turnId: string; state: TurnState };
}

/** The rows that another version of the server has written, without what this version derives with them. */
export class Underived extends Store {
  /** Derives the states of up to `limit` turns, and resets those of their sessions. False if there are none. */
  async deriveTurns(limit: number): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      // The condition of the partial index, which a bound on its column lets both databases search.
      const isUnderived = sql<boolean>`(state is null or (archived = 1 and state <> 'ended'))`;
      const rows = await db
        .selectFrom('turns')
        .select(['id', 'session_id'])
        .where(isUnderived)
        .where('id', '>', '')
        .limit(limit)
        .execute();
      if (rows.length === 0) return false;
      // The sessions first, as everything else that changes both; in one order, as other workers do.
      const sessionIds = [...new Set(rows.map(({ session_id: id }) => id))].toSorted();
      for (const id of sessionIds) await db.updateTable('sessions').set({ state: null }).where('id', '=', id).execute();
      const ids = rows.map(({ id }) => id);
      await db
        .updateTable('turns')
        .set({
          state: sql<TurnState>`case when archived = 1 then 'ended' when sequence is not null then 'running'
            when queue_number is not null then 'queued' else 'requested' end`,
        })
        .where('id', 'in', ids)
        .where(isUnderived)
        .execute();
      return true;
    });
  }

  /** The ids of up to `limit` sessions whose states are not derived, after the id `after`. */
  async sessions(after: string, limit: number): Promise<string[]> {
    const rows = await this.db
      .selectFrom('sessions')
      .select('id')
      .where('state', 'is', null)
      .where('deleted_at', 'is', null)
      .where('id', '>', after)
      .orderBy('id')
      .limit(limit)
      .execute();
    return rows.map(({ id }) => id);
  }

  async derive(sessionId: string, rows: DerivedRows): Promise<void> {
    const { last, open } = rows;
    await this.context.outbox.transaction(async (db, emit) => {
      await lockSession(db, { id: sessionId });
      const session = db.selectFrom('sessions').select('id').where('id', '=', sessionId);
      if (!(await session.where('deleted_at', 'is', null).executeTakeFirst())) return;
      if (open) await db.updateTable('turns').set({ state: open.state }).where('id', '=', open.turnId).execute();
      if (last) {
        const { turnId, leaves, at } = last;
        await db.updateTable('turns').set({ leaves, state_at: at }).where('id', '=', turnId).execute();
      }
      for (const reader of this.context.features.readers) await reader.sessionDerived?.(db, sessionId, rows);
      emit(...(await sessionChanged(db, sessionId)));
    });
  }
}
