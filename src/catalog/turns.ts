import { sql, type Transaction } from 'kysely';
import type { TurnState } from '../core/session-state.ts';
import type { StartReading } from './log-reader.ts';
import type { Tables, TurnRow } from './schema.ts';
import { aadForTitle, lockSession, touchSession } from './sessions.ts';
import { sessionChanged, turnAccepted } from './session-states.ts';
import { Store } from './store.ts';

/** The states of turns that have begun and do not work. */
const WAITING: TurnState[] = ['delegating', 'waiting_client', 'waiting_person', 'paused'];

/** Rows per query of `all`. */
const TURN_BATCH_SIZE = 100;

export interface AcceptedTurn extends StartReading {
  turnId: string;
  sessionId: string;
  previousTurnId: string | null;
  sequence: number;
  createdAt: string;
  /** The session's title, if it has none yet. */
  title: string | null;
  /** Set if it has waited in the queue of its session. */
  begunAt?: string;
}

/** The index of turns; see `TurnsTable` for its two kinds of rows. */
export class Turns extends Store {
  async get(id: string): Promise<TurnRow | undefined> {
    return this.db.selectFrom('turns').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** The newest accepted turn of a session; with `before`, the newest with a lower sequence. */
  async last(sessionId: string, before?: number): Promise<TurnRow | undefined> {
    const accepted = this.#ofSession(sessionId)
      .where('sequence', 'is not', null)
      .$if(before !== undefined, (query) => query.where('sequence', '<', before ?? 0));
    // A session workflow whose state is older than the catalog's assigns some numbers twice.
    return accepted.orderBy('sequence', 'desc').orderBy('created_at', 'desc').limit(1).executeTakeFirst();
  }

  /** The accepted turns of a session after the one with this sequence, in their order. */
  async after(sessionId: string, sequence: number, limit: number): Promise<TurnRow[]> {
    return this.#ofSession(sessionId)
      .where('sequence', '>', sequence)
      .orderBy('sequence')
      .orderBy('created_at')
      .orderBy('id')
      .limit(limit)
      .execute();
  }

  /**
   * The accepted turns of a session of which one was the newest when `id` was minted, oldest first: the newest one with a
   * lower id, and the two after it, since the clocks of servers differ.
   */
  async around(sessionId: string, id: string): Promise<Pick<TurnRow, 'id'>[]> {
    const accepted = this.db
      .selectFrom('turns')
      .select('id')
      .where('session_id', '=', sessionId)
      .where('sequence', 'is not', null);
    const [before, after] = await Promise.all([
      accepted.where('id', '<', id).orderBy('sequence', 'desc').limit(1).execute(),
      accepted.where('id', '>', id).orderBy('sequence').limit(2).execute(),
    ]);
    return [...before, ...after];
  }

  /** The requests of a session that were neither accepted nor withdrawn: some wait in its queue. */
  async requests(sessionId: string): Promise<TurnRow[]> {
    return this.#ofSession(sessionId).where('sequence', 'is', null).where('archived', '=', 0).execute();
  }

  /** The position of the turn with this number in the queue of its session, from 1. */
  async positionInQueue(sessionId: string, number: number): Promise<number> {
    const { before } = await this.db
      .selectFrom('turns')
      .select((eb) => eb.fn.countAll<number>().as('before'))
      .where('session_id', '=', sessionId)
      .where('queue_number', '<', number)
      .where('sequence', 'is', null)
      .where('archived', '=', 0)
      .executeTakeFirstOrThrow();
    return before + 1;
  }

  /** The sessions in whose queues turns wait. */
  async sessionsWithQueue(): Promise<string[]> {
    const rows = await this.db
      .selectFrom('turns')
      .innerJoin('sessions', 'sessions.id', 'turns.session_id')
      .select('turns.session_id')
      // A literal, so that SQLite uses the partial index.
      .where('turns.archived', '=', sql.lit(0))
      .where('turns.queue_number', 'is not', null)
      .where('turns.sequence', 'is', null)
      .where('sessions.deleted_at', 'is', null)
      .execute();
    // Not by the database: for distinct sessions SQLite reads the turns of all of them in their order.
    return [...new Set(rows.map((row) => row.session_id))];
  }

  /**
   * The turns whose logs are not in the archive, oldest first: they run, wait in a queue, or still have to be archived.
   */
  async unarchived(): Promise<Pick<TurnRow, 'id' | 'session_id' | 'created_at'>[]> {
    return (
      this.db
        .selectFrom('turns')
        .select(['id', 'session_id', 'created_at'])
        // A literal, so that SQLite uses the partial index.
        .where('archived', '=', sql.lit(0))
        .where((eb) => eb.or([eb('sequence', 'is not', null), eb('queue_number', 'is not', null)]))
        .orderBy('created_at')
        .execute()
    );
  }

  /**
   * The turns of a session before an accepted one whose logs are not in the archive, oldest first. A turn without a
   * sequence may have been accepted, too: its API process may have died before it wrote that to the index.
   */
  async unarchivedBefore(
    turn: Pick<TurnRow, 'id' | 'session_id' | 'sequence' | 'previous_turn_id'>,
  ): Promise<Pick<TurnRow, 'id' | 'sequence'>[]> {
    return this.db
      .selectFrom('turns')
      .select(['id', 'sequence'])
      .where('archived', '=', sql.lit(0))
      .where('session_id', '=', turn.session_id)
      .where((eb) =>
        eb.or([
          eb('sequence', '<', turn.sequence),
          eb.and([eb('sequence', 'is', null), eb('queue_number', 'is', null), eb('id', '<', turn.id)]),
          eb.and([eb('sequence', 'is', null), eb('id', '=', turn.previous_turn_id)]),
        ]),
      )
      .orderBy('sequence')
      .execute();
  }

  /** The turns of a session without a following turn: the ends of its branches. */
  async branchEnds(sessionId: string): Promise<TurnRow[]> {
    return this.#ofSession(sessionId)
      .where('sequence', 'is not', null)
      .where((eb) =>
        eb.not(
          eb.exists(
            eb
              .selectFrom('turns as next')
              .select('next.id')
              .whereRef('next.previous_turn_id', '=', 'turns.id')
              // Always so; PostgreSQL would otherwise read the index of all previous turns for a long session.
              .where('next.session_id', '=', sessionId),
          ),
        ),
      )
      .execute();
  }

  /** Whether another turn follows this one. */
  async isFollowed(turnId: string): Promise<boolean> {
    const followers = this.db.selectFrom('turns').select('id').where('previous_turn_id', '=', turnId);
    return (await followers.limit(1).executeTakeFirst()) !== undefined;
  }

  /**
   * A turn and its predecessors, newest first, at most `limit`; with `archivedOnly`, up to the first whose log is not
   * in the archive.
   */
  async chain(turnId: string, limit: number, { archivedOnly = false } = {}): Promise<TurnRow[]> {
    return this.db
      .withRecursive('chain', (db) =>
        db
          .selectFrom('turns')
          .selectAll()
          .select(sql<number>`1`.as('depth'))
          .where('id', '=', turnId)
          .$if(archivedOnly, (query) => query.where('archived', '=', 1))
          .unionAll(
            db
              .selectFrom('turns')
              .innerJoin('chain', 'chain.previous_turn_id', 'turns.id')
              .selectAll('turns')
              .select(sql<number>`chain.depth + 1`.as('depth'))
              .where('chain.depth', '<', limit)
              .$if(archivedOnly, (query) => query.where('turns.archived', '=', 1)),
          ),
      )
      .selectFrom('chain')
      .selectAll()
      .orderBy('depth')
      .execute();
  }

  /**
   * Records a request for a turn; for one of a run, with its secrets. False if the session does not exist or was deleted.
   */
  async request(turn: { id: string; session_id: string; created_at: string }, secrets?: string): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      if (!(await touchSession(db, { id: turn.session_id, at: turn.created_at }))) return false;
      await requestTurn(db, turn);
      for (const reader of this.context.features.readers) await reader.turnRequested?.(db, turn, secrets);
      return true;
    });
  }

  /**
   * Counts the open turns by the subject of their session: a turn is open from its request until its log is archived,
   * except while it waits for people, clients or other agents, is paused, or is in a queue. Turns that were created and
   * resumed before `createdSince` are not counted, since none runs for that long, nor are requests from before
   * `requestedSince`, since they were abandoned.
   */
  async countOpen(which: {
    /** Sessions whose turns are not counted. */
    except: string[];
    createdSince: string;
    requestedSince: string;
  }): Promise<Map<string, number>> {
    const { except, createdSince, requestedSince } = which;
    const rows = await this.db
      .selectFrom('turns')
      .innerJoin('sessions', 'sessions.id', 'turns.session_id')
      .select(['sessions.subject_id', (eb) => eb.fn.countAll<number>().as('count')])
      // A literal, so that SQLite uses the partial index.
      .where('turns.archived', '=', sql.lit(0))
      .where((eb) => eb.or([eb('turns.state', 'is', null), eb('turns.state', 'not in', WAITING)]))
      .where((eb) => eb.or([eb('turns.created_at', '>', createdSince), eb('turns.state_at', '>', createdSince)]))
      .where((eb) =>
        eb.or([
          eb('turns.sequence', 'is not', null),
          eb.and([eb('turns.queue_number', 'is', null), eb('turns.created_at', '>', requestedSince)]),
        ]),
      )
      .where('turns.session_id', 'not in', except)
      .groupBy('sessions.subject_id')
      .execute();
    return new Map(rows.map(({ subject_id: subject, count }) => [subject, count]));
  }

  /** Deletes a request. An accepted turn stays. */
  async withdraw(turnId: string): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      const withdrawn = db.deleteFrom('turns').where('id', '=', turnId).where('sequence', 'is', null);
      const turn = await withdrawn.returning('session_id').executeTakeFirst();
      if (turn) await this.#removed(db, turn.session_id);
    });
  }

  /** Records that a request waits in the queue of its session. Idempotent. False if the session was deleted. */
  async enqueue(turn: { turnId: string; sessionId: string; createdAt: string; number: number }): Promise<boolean> {
    const { turnId, sessionId, createdAt, number } = turn;
    return this.db.transaction().execute(async (db) => {
      if (!(await touchSession(db, { id: sessionId, at: createdAt }))) return false;
      await db
        .insertInto('turns')
        .values({ id: turnId, session_id: sessionId, created_at: createdAt, queue_number: number, state: 'queued' })
        .onConflict((conflict) =>
          conflict
            .column('id')
            .doUpdateSet({ queue_number: number, state: 'queued' })
            .where('turns.sequence', 'is', null),
        )
        .execute();
      return true;
    });
  }

  /**
   * Turns a request into an accepted turn. Idempotent. False, and without effect, if the session was deleted in the
   * meantime.
   */
  async accept(turn: AcceptedTurn): Promise<boolean> {
    const { turnId, sessionId, previousTurnId, sequence, createdAt, title, begunAt } = turn;
    const stored = title ? this.cipher.sealText(title, aadForTitle(sessionId)) : title;
    const row = {
      session_id: sessionId,
      previous_turn_id: previousTurnId,
      sequence,
      created_at: createdAt,
      state: 'running' as const,
      state_at: begunAt ?? createdAt,
      ...this.context.features.columnsOf(turn),
    };
    return this.context.outbox.transaction(async (db, emit) => {
      if (!(await touchSession(db, { id: sessionId, at: createdAt, begun: { title: stored } }))) return false;
      const isNew = await db
        .insertInto('turns')
        .values({ id: turnId, ...row })
        .onConflict((conflict) => conflict.column('id').doUpdateSet(row).where('turns.sequence', 'is', null))
        .returning('id')
        .executeTakeFirst();
      if (!isNew) return true;
      for (const reader of this.context.features.readers) await reader.turnAccepted?.(db, turn, emit);
      const begun = { id: turnId, archived: 0, archived_through: 0, leaves: null };
      emit(...(await turnAccepted(db, { ...row, ...begun })));
      return true;
    });
  }

  /**
   * All turns and requests of a session, also of a deleted one, by id. The consumer may remove the rows that it has
   * received.
   */
  async *all(sessionId: string): AsyncGenerator<TurnRow> {
    let after = '';
    for (;;) {
      const turns = this.#ofSession(sessionId).where('id', '>', after).orderBy('id');
      const rows = await turns.limit(TURN_BATCH_SIZE).execute();
      yield* rows;
      const last = rows.at(-1);
      if (!last || rows.length < TURN_BATCH_SIZE) return;
      after = last.id;
    }
  }

  /** The highest id among the turns and requests of a session, apart from `except`. */
  async newestId(sessionId: string, { except }: { except?: string | undefined } = {}): Promise<string | undefined> {
    const all = this.db.selectFrom('turns').select('id').where('session_id', '=', sessionId);
    const others = except === undefined ? all : all.where('id', '<>', except);
    return (await others.orderBy('id', 'desc').limit(1).executeTakeFirst())?.id;
  }

  /** Removes a turn with its log. */
  async remove(turnId: string): Promise<void> {
    await this.context.outbox.transaction(async (db, emit) => {
      // First, as a process that adds to the archive does.
      await lockSession(db, { turnId });
      const turn = await db.deleteFrom('turns').where('id', '=', turnId).returning('session_id').executeTakeFirst();
      if (turn) await this.#removed(db, turn.session_id);
      await db.deleteFrom('archive').where('turn_id', '=', turnId).execute();
      for (const table of this.context.features.tablesOfTurns) {
        await db.deleteFrom(table).where('turn_id', '=', turnId).execute();
      }
      if (turn) emit(...(await sessionChanged(db, turn.session_id)));
    });
  }

  #ofSession(sessionId: string) {
    return this.db.selectFrom('turns').selectAll().where('session_id', '=', sessionId);
  }

  async #removed(db: Transaction<Tables>, sessionId: string): Promise<void> {
    for (const reader of this.context.features.readers) await reader.turnRemoved?.(db, sessionId);
  }
}

/** Inserts the request for a turn, which a repetition leaves as it is. */
export async function requestTurn(
  db: Transaction<Tables>,
  turn: Pick<TurnRow, 'id' | 'session_id' | 'created_at'>,
): Promise<void> {
  await db
    .insertInto('turns')
    .values({ ...turn, state: 'requested' })
    .onConflict((conflict) => conflict.column('id').doNothing())
    .execute();
}
