import type { Kysely } from 'kysely';
import type { DelegationRow, NewDelegationRow, NewSessionRow, Tables } from './schema.ts';
import { touchSession } from './sessions.ts';

/** The sessions of agents that answer the tool calls of other agents. */
export class Delegations {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  /** How a session was created; undefined for one that was not created by a tool call. */
  async get(childSessionId: string): Promise<DelegationRow | undefined> {
    return this.#db
      .selectFrom('delegations')
      .selectAll()
      .where('child_session_id', '=', childSessionId)
      .executeTakeFirst();
  }

  /** The children of a session, oldest first. */
  async ofSession(parentSessionId: string): Promise<DelegationRow[]> {
    return this.#db
      .selectFrom('delegations')
      .selectAll()
      .where('parent_session_id', '=', parentSessionId)
      .orderBy('created_at')
      .orderBy('child_session_id')
      .execute();
  }

  /**
   * Creates the session of a call, which has no title and no metadata; a repetition changes nothing. Returns how it was
   * created, by the first attempt. Undefined if the parent was deleted.
   */
  async create(delegation: NewDelegationRow, session: NewSessionRow): Promise<DelegationRow | undefined> {
    return this.#db.transaction().execute(async (db) => {
      // Locks the row of the parent, whose deletion comes entirely before or after.
      const { parent_session_id: id, created_at: at } = delegation;
      if (!(await touchSession(db, { id, at }))) return undefined;
      const { child_session_id: child } = delegation;
      const known = db.selectFrom('delegations').selectAll().where('child_session_id', '=', child);
      // Read under the lock, so that only the first attempt inserts.
      const before = await known.executeTakeFirst();
      if (before) return before;
      await db
        .insertInto('sessions')
        .values({ ...session, active_at: session.created_at })
        .execute();
      await db.insertInto('delegations').values(delegation).execute();
      return known.executeTakeFirst();
    });
  }

  /** The turn of the child is to be cancelled. */
  async stop(childSessionId: string): Promise<void> {
    await this.#db
      .updateTable('delegations')
      .set({ stopped: 1 })
      .where('child_session_id', '=', childSessionId)
      .execute();
  }

  /** The parent's turn has the result, or needs none. */
  async told(childSessionId: string): Promise<void> {
    await this.#db.updateTable('delegations').set({ told: 1 }).where('child_session_id', '=', childSessionId).execute();
  }

  /** The delegation of which a turn is the child's, unless the parent's turn has its result. */
  async untoldOf(childTurnId: string): Promise<DelegationRow | undefined> {
    return this.#untold().where('child_turn_id', '=', childTurnId).executeTakeFirst();
  }

  /** The children of a turn, or of all turns of a session, whose results the turns do not have. */
  async untoldBy(parent: { turnId: string } | { sessionId: string }): Promise<DelegationRow[]> {
    return 'turnId' in parent
      ? this.#untold().where('parent_turn_id', '=', parent.turnId).execute()
      : this.#untold().where('parent_session_id', '=', parent.sessionId).execute();
  }

  /**
   * The untold delegations in which something has ended, according to the index: the child's turn or its session, or the
   * parent's turn. Also those from before `lost` whose child has no turn: it will never start, or Temporal has lost it.
   */
  async toSettle(lost: string, limit: number): Promise<DelegationRow[]> {
    return this.#untold()
      .leftJoin('turns as child', 'child.id', 'child_turn_id')
      .leftJoin('sessions as session', (join) =>
        join.onRef('session.id', '=', 'child_session_id').on('session.deleted_at', 'is', null),
      )
      .leftJoin('turns as parent', 'parent.id', 'parent_turn_id')
      .where((eb) =>
        eb.or([
          eb('child.archived', '=', 1),
          eb('session.id', 'is', null),
          eb('parent.id', 'is', null),
          eb('parent.archived', '=', 1),
          eb.and([eb('child.id', 'is', null), eb('delegations.created_at', '<', lost)]),
        ]),
      )
      .orderBy('delegations.created_at')
      .limit(limit)
      .execute();
  }

  #untold() {
    return this.#db.selectFrom('delegations').selectAll('delegations').where('told', '=', 0);
  }
}
