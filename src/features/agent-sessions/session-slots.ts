import type { Insertable, Kysely } from 'kysely';
import type { InputItem } from '../../core/records/input.ts';
import type { NewSessionRow, SessionRequestsTable, Tables, TurnRow } from '../../catalog/schema.ts';
import { deletionOf, sessionChanged } from '../../catalog/session-states.ts';
import { SessionInputs, type RequestInput } from './session-inputs.ts';
import { insertRequest } from './session-requests.ts';
import {
  admissible,
  holders,
  isAnyWaiting,
  isRefused,
  lockSlots,
  place,
  usageFor,
  type Capacity,
  type Placement,
} from './slot-holders.ts';
import { insertSession, lockSession, touchSession } from '../../catalog/sessions.ts';
import { requestTurn } from '../../catalog/turns.ts';
import { addStoredBytes } from '../../catalog/stored-bytes.ts';
import { changeRows, Store } from '../../catalog/store.ts';

interface NewSession {
  session: NewSessionRow;
  request: Insertable<SessionRequestsTable>;
  /** The first messages; a session without any needs a slot only when it gets some. */
  input: InputItem[];
  /** The id of the first turn, if the session gets a slot now. */
  turnId: string;
  mayQueue: boolean;
  /** The delegating call, whose result the first turn produces. */
  delegation?: Omit<Insertable<Tables['delegations']>, 'child_turn_id'>;
}

/** A turn to start: the first one of its session. */
interface FirstTurn {
  turnId: string;
  /** JSON. */
  roles: string;
  input: InputItem[];
}

type Request = Pick<TurnRow, 'id' | 'session_id' | 'created_at'>;

/**
 * The slots of the sessions of the Agents API v2, and the queue of those that wait for one. Which sessions occupy a
 * slot is not stored but derived: see `holders`, which finds them by indexes that contain only such sessions. Every
 * transaction that takes a slot locks one row, so that no two processes take the last slot.
 */
export class SessionSlots extends Store {
  readonly #inputs = new SessionInputs(this.cipher);

  /**
   * Inserts a session with its request and its first messages, if there is a slot or room in the queue. `no_parent`:
   * the delegating session was deleted.
   */
  async create(
    { session, request, input, turnId, mayQueue, delegation }: NewSession,
    capacity: Capacity,
  ): Promise<Placement | 'none' | 'exists' | 'no_parent'> {
    return this.db.transaction().execute(async (db) => {
      const number = await lockSlots(db);
      // Checked first, since an existing session may itself have taken the last slot.
      const known = db.selectFrom('sessions').select('id').where('id', '=', session.id);
      if (await known.executeTakeFirst()) return 'exists';
      if (delegation) {
        // Locks the row of the parent, so that its deletion happens entirely before or after this transaction.
        const { parent_session_id: id, created_at: at } = delegation;
        if (!(await touchSession(db, { id, at }))) return 'no_parent';
      }
      const takesSlot = request.takes_slot !== 0;
      const { subject_id: subject } = session;
      const placement = input.length === 0 ? 'none' : await place(db, capacity, { subject, takesSlot, mayQueue });
      if (isRefused(placement)) return placement;
      const state = placement === 'none' ? 'idle' : placement === 'slot' ? 'pending' : 'queued';
      await insertSession(db, this.cipher, { ...session, state });
      await insertRequest(db, this.cipher, {
        ...request,
        ...(placement === 'slot' && { first_turn_id: turnId }),
        ...(placement === 'queue' && { queue_number: number }),
      });
      await addStoredBytes(db, session.id, request.request?.length ?? 0);
      if (input.length > 0) await this.#inputs.add(db, session.id, { requestId: null, input });
      if (delegation) {
        await db
          .insertInto('delegations')
          .values({ ...delegation, child_turn_id: turnId })
          .execute();
      }
      return placement;
    });
  }

  /** Whether the messages of this request are, or were, among the first messages of a session. */
  async hasInput(sessionId: string, requestId: string): Promise<boolean> {
    return this.#inputs.hasRequest(this.db, sessionId, requestId);
  }

  /**
   * Adds messages to a queued session; a repeated request adds nothing. Undefined, and without effect, if the session
   * is not queued; false if it would have too many messages.
   */
  async buffer(sessionId: string, request: RequestInput, now: string): Promise<boolean | undefined> {
    return this.db.transaction().execute(async (db) => {
      if (!(await touchSession(db, { id: sessionId, at: now }))) return undefined;
      // Changes nothing, but locks the row: a concurrent transaction may admit the session.
      const isQueued = await changeRows(queuedRequest(db, sessionId).set({ session_id: sessionId }));
      if (isQueued) return this.#inputs.add(db, sessionId, request);
      return (await this.#inputs.hasRequest(db, sessionId, request.requestId)) || undefined;
    });
  }

  /**
   * Adds messages to a session whose first turn was cancelled or rejected before it started, and gives it a slot; a
   * repetition has no effect. Undefined, and without effect, if this is not such a session.
   */
  async revive(
    { sessionId, turnId, request }: { sessionId: string; turnId: string; request: RequestInput },
    capacity: Capacity,
  ): Promise<Placement | 'too_many_messages' | undefined> {
    return this.context.outbox.transaction(async (db, emit) => {
      await lockSlots(db);
      if (!(await touchSession(db, { id: sessionId, at: capacity.now.toISOString() }))) return undefined;
      if (await this.#inputs.hasRequest(db, sessionId, request.requestId)) return 'slot';
      const stopped = await db
        .selectFrom('session_requests')
        .innerJoin('sessions', 'sessions.id', 'session_requests.session_id')
        .select(['takes_slot', 'sessions.subject_id'])
        .where('session_id', '=', sessionId)
        .where('queue_number', 'is', null)
        .where('first_turn_id', 'is', null)
        .executeTakeFirst();
      if (!stopped || !(await this.#inputs.has(db, sessionId))) return undefined;
      const placement = await place(db, capacity, { subject: stopped.subject_id, takesSlot: stopped.takes_slot === 1 });
      if (placement !== 'slot') return placement;
      if (!(await this.#inputs.add(db, sessionId, request))) return 'too_many_messages';
      await requestOf(db, sessionId)
        .set({ first_turn_id: turnId, start_error: null, start_failed_at: null, delete_at: null })
        .execute();
      emit(...(await sessionChanged(db, sessionId)));
      return placement;
    });
  }

  /**
   * Requests a turn of a session, if the session is idle, has a slot or can get one. From then on the request occupies
   * a slot, for an idle session even above the limit: the API promises that it takes messages until its timeout.
   * Sessions that were created through another API, and those of their delegates, need none.
   */
  async take(turn: Request, capacity: Capacity): Promise<Placement> {
    return this.db.transaction().execute(async (db) => {
      await lockSlots(db);
      const session = await db
        .selectFrom('session_requests')
        .innerJoin('sessions', 'sessions.id', 'session_requests.session_id')
        .select(['sessions.subject_id', 'waits_until'])
        .where('session_id', '=', turn.session_id)
        .where('takes_slot', '=', 1)
        .executeTakeFirst();
      if (!session) return 'slot';
      const { subject_id: subject, waits_until: waitsUntil } = session;
      const isIdle = waitsUntil !== null && waitsUntil > capacity.now.toISOString();
      const holds =
        isIdle || (await holders(db, capacity.now).select('id').where('id', '=', turn.session_id).executeTakeFirst());
      const placement = holds ? 'slot' : await place(db, capacity, { subject });
      // Nothing is written for a deleted session: the request of the turn itself reports the deletion.
      if (placement !== 'slot' || !(await touchSession(db, { id: turn.session_id, at: turn.created_at }))) {
        return placement;
      }
      await requestTurn(db, turn);
      return placement;
    });
  }

  /**
   * Gives the free slots to the sessions that were queued first and whose subjects may have more slots, each with the
   * id of its first turn. Returns the ids of the sessions.
   */
  async admit(capacity: Capacity, newTurnId: () => string): Promise<string[]> {
    if (!(await isAnyWaiting(this.db))) return [];
    return this.context.outbox.transaction(async (db, emit) => {
      await lockSlots(db);
      const admitted: string[] = [];
      for (const sessionId of await admissible(db, capacity)) {
        // Locked before its request, as in every transaction that changes both.
        await lockSession(db, { id: sessionId });
        const placed = queuedRequest(db, sessionId).set({ queue_number: null, first_turn_id: newTurnId() });
        // The session may have been cancelled since the queue was read.
        if (!(await changeRows(placed))) continue;
        admitted.push(sessionId);
        emit(...(await sessionChanged(db, sessionId)));
      }
      return admitted;
    });
  }

  /** The sessions whose first turns are to be started. */
  async starting(): Promise<string[]> {
    const rows = await this.db
      .selectFrom('session_requests')
      .crossJoin('sessions')
      .select('session_requests.session_id')
      .whereRef('sessions.id', '=', 'session_requests.session_id')
      .where('session_requests.first_turn_id', '>', '')
      .where('sessions.deleted_at', 'is', null)
      .orderBy('session_requests.first_turn_id')
      .execute();
    return rows.map((row) => row.session_id);
  }

  /** The first turn of a session, if it is to be started. */
  async firstTurn(sessionId: string): Promise<FirstTurn | undefined> {
    const row = await this.db
      .selectFrom('session_requests')
      .select(['first_turn_id', 'roles'])
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    if (!row?.first_turn_id) return undefined;
    const { first_turn_id: turnId, roles } = row;
    return { turnId, roles, input: await this.#inputs.read(this.db, sessionId) };
  }

  /**
   * Requests the first turn of a session. From then on the request occupies the slot, even if the session is cancelled
   * while the turn is being started. False if it was cancelled before, or the turn is no longer its first one.
   */
  async begin(turn: Request): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      if (!(await touchSession(db, { id: turn.session_id, at: turn.created_at }))) return false;
      // Changes nothing, but locks the row.
      const isFirst = await changeRows(firstTurnIs(db, turn.session_id, turn.id).set({ session_id: turn.session_id }));
      if (isFirst) await requestTurn(db, turn);
      return isFirst;
    });
  }

  /** Replaces a first turn that is too old to be started. */
  async renew(sessionId: string, turnId: string, newTurnId: string): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      const renewed = firstTurnIs(db, sessionId, turnId).set({ first_turn_id: newTurnId });
      if (!(await changeRows(renewed))) return;
      await db
        .updateTable('delegations')
        .set({ child_turn_id: newTurnId })
        .where('child_turn_id', '=', turnId)
        .execute();
    });
  }

  /** Records that the first turn was started. False if the session was cancelled in the meantime. */
  async started(sessionId: string, turnId: string): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      // Changes nothing, but locks the row.
      const request = requestOf(db, sessionId);
      const row = await request.set({ session_id: sessionId }).returning('first_turn_id').executeTakeFirst();
      const isCurrent = row?.first_turn_id === turnId;
      // A cancelled session may have got another first turn since, for which its messages are kept.
      if (!isCurrent && row?.first_turn_id) return false;
      await this.#inputs.clear(db, sessionId);
      await request.set({ first_turn_id: null }).execute();
      return isCurrent;
    });
  }

  /** Records that the first turn was rejected. */
  async rejected(sessionId: string, turnId: string, { error, now }: { error: string; now: string }): Promise<void> {
    await this.context.outbox.transaction(async (db, emit) => {
      await lockSession(db, { id: sessionId });
      const row = await firstTurnIs(db, sessionId, turnId)
        .set({ first_turn_id: null, start_error: error, start_failed_at: now })
        .returning('delete_after_min')
        .executeTakeFirst();
      if (!row) return;
      await requestOf(db, sessionId)
        .set({ delete_at: deletionOf(now, row.delete_after_min) })
        .execute();
      emit(...(await sessionChanged(db, sessionId)));
    });
  }

  /**
   * Records that a session was cancelled: it leaves the queue, its first turn is not started, and it waits for nothing.
   * Returns whether it was queued. Has no effect on a session of another API.
   */
  async cancel(sessionId: string, now: string): Promise<boolean> {
    return this.context.outbox.transaction(async (db, emit) => {
      await lockSession(db, { id: sessionId });
      const row = requestOf(db, sessionId);
      // Changes nothing, but locks the row: a concurrent transaction may admit the session.
      const before = await row
        .set({ session_id: sessionId })
        .returning(['queue_number', 'delete_after_min'])
        .executeTakeFirst();
      if (!before) return false;
      const { queue_number: number, delete_after_min: minutes } = before;
      await row
        .set({
          cancelled_at: now,
          queue_number: null,
          first_turn_id: null,
          waits_until: null,
          idle_ends_at: null,
          delete_at: deletionOf(now, minutes),
        })
        .execute();
      emit(...(await sessionChanged(db, sessionId)));
      return number !== null;
    });
  }

  /** The numbers of sessions with a slot, of queued sessions, and of sessions that this subject could begin now. */
  async usage(subject: string, capacity: Capacity): Promise<{ active: number; queued: number; available: number }> {
    return usageFor(this.db, subject, capacity);
  }
}

function requestOf(db: Kysely<Tables>, sessionId: string) {
  return db.updateTable('session_requests').where('session_id', '=', sessionId);
}

function queuedRequest(db: Kysely<Tables>, sessionId: string) {
  return requestOf(db, sessionId).where('queue_number', 'is not', null);
}

function firstTurnIs(db: Kysely<Tables>, sessionId: string, turnId: string) {
  return requestOf(db, sessionId).where('first_turn_id', '=', turnId);
}
