import type { Generated, Selectable } from 'kysely';
import type { LogReader } from '../../catalog/log-reader.ts';

import type { Tables } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The sessions of delegates, each with the tool call of its parent. */
    delegations: {
      child_session_id: string;
      /** The first turn of the session, whose end is the result of the call. */
      child_turn_id: string;
      parent_session_id: string;
      parent_turn_id: string;
      thread_id: string;
      tool_call_id: string;
      /** The name of the delegate. */
      agent: string;
      /** 1 for a child of a session without a parent. */
      depth: number;
      created_at: string;
      /** 1: the parent's turn has the result, or has ended without it. The delegation is complete. */
      told: Generated<number>;
    };
  }
}

export type DelegationRow = Selectable<Tables['delegations']>;

export const delegationsReader: LogReader = {
  sessionRemoved: async (db, id, { isLast }) => {
    if (isLast) await db.deleteFrom('delegations').where('child_session_id', '=', id).execute();
  },
};

/** The sessions of delegates and the tool calls that they execute. `SessionSlots.create` inserts the rows. */
export class Delegations extends Store {
  /** The delegation of a session; undefined if no tool call has created the session. */
  async get(childSessionId: string): Promise<DelegationRow | undefined> {
    return this.db
      .selectFrom('delegations')
      .selectAll()
      .where('child_session_id', '=', childSessionId)
      .executeTakeFirst();
  }

  /** The children of a session, oldest first. */
  async ofSession(parentSessionId: string): Promise<DelegationRow[]> {
    return this.db
      .selectFrom('delegations')
      .selectAll()
      .where('parent_session_id', '=', parentSessionId)
      .orderBy('created_at')
      .orderBy('child_session_id')
      .execute();
  }

  /** Records that the parent's turn has the result, or needs none. */
  async setNotified(childSessionId: string): Promise<void> {
    await this.db.updateTable('delegations').set({ told: 1 }).where('child_session_id', '=', childSessionId).execute();
  }

  /** The delegations with this turn as child's or parent's turn, and without a result in the parent's turn. */
  async unnotifiedOf(turnId: string): Promise<DelegationRow[]> {
    return this.#unnotified()
      .where((eb) => eb.or({ child_turn_id: turnId, parent_turn_id: turnId }))
      .execute();
  }

  /** The children of a turn whose results the turn does not have. */
  async unnotifiedBy(parentTurnId: string): Promise<DelegationRow[]> {
    return this.#unnotified().where('parent_turn_id', '=', parentTurnId).execute();
  }

  /**
   * The incomplete delegations in which, according to the catalog, the child's turn or session or the parent's turn has
   * ended. Includes those whose child will get no turn: it was rejected or cancelled, or Temporal has lost it.
   */
  async toSettle(limit: number): Promise<DelegationRow[]> {
    return this.#unnotified()
      .leftJoin('turns as child', 'child.id', 'child_turn_id')
      .leftJoin('sessions as session', (join) =>
        join.onRef('session.id', '=', 'child_session_id').on('session.deleted_at', 'is', null),
      )
      .leftJoin('session_requests as request', 'request.session_id', 'child_session_id')
      .leftJoin('turns as parent', 'parent.id', 'parent_turn_id')
      .where((eb) =>
        eb.or([
          eb('child.archived', '=', 1),
          eb('session.id', 'is', null),
          eb('parent.id', 'is', null),
          eb('parent.archived', '=', 1),
          eb.and([eb('child.id', 'is', null), eb('request.first_turn_id', 'is', null)]),
        ]),
      )
      .orderBy('delegations.created_at')
      .limit(limit)
      .execute();
  }

  #unnotified() {
    return this.db.selectFrom('delegations').selectAll('delegations').where('told', '=', 0);
  }
}
