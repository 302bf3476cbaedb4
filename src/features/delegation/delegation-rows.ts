import type { Generated, Selectable } from 'kysely';
import type { LogReader } from '../../catalog/log-reader.ts';

import type { Tables } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The sessions of agents that answer the tool calls of other agents, each with the call of its parent. */
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
      /** The parent's turn has the result, or has ended without it: nothing is left to do. */
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

/** The sessions of agents that answer the tool calls of other agents: `SessionSlots.create` creates them. */
export class Delegations extends Store {
  /** How a session was created; undefined for one that was not created by a tool call. */
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

  /** The parent's turn has the result, or needs none. */
  async told(childSessionId: string): Promise<void> {
    await this.db.updateTable('delegations').set({ told: 1 }).where('child_session_id', '=', childSessionId).execute();
  }

  /** The delegations of which a turn is the child's or the parent's, and whose results the parent's turn does not have. */
  async untoldOf(turnId: string): Promise<DelegationRow[]> {
    return this.#untold()
      .where((eb) => eb.or({ child_turn_id: turnId, parent_turn_id: turnId }))
      .execute();
  }

  /** The children of a turn whose results the turn does not have. */
  async untoldBy(parentTurnId: string): Promise<DelegationRow[]> {
    return this.#untold().where('parent_turn_id', '=', parentTurnId).execute();
  }

  /**
   * The untold delegations in which something has ended, according to the catalog: the child's turn or its session, or the
   * parent's turn. Also those whose child has no turn and will get none: it was rejected or cancelled, or Temporal has lost
   * it.
   */
  async toSettle(limit: number): Promise<DelegationRow[]> {
    return this.#untold()
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

  #untold() {
    return this.db.selectFrom('delegations').selectAll('delegations').where('told', '=', 0);
  }
}
