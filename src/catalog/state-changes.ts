import type { Selectable, Transaction } from 'kysely';
import type { LogEntry } from '../core/records.ts';
import { stateMarks } from '../core/state-marks.ts';
import type { SessionChanged } from './outbox.ts';
import type { SessionRequestsTable, Tables, TurnRow } from './schema.ts';

/** The place after an entry of a turn's log. */
export interface LogPlace {
  turnId: string;
  ordinal: number;
  /** The turn has ended, and so has the idle timeout after it: that was told. */
  isIdleOver?: true;
}

/** The states of a session before its first turn, which no log has. */
type UnbegunState = 'queued' | 'pending' | 'interrupted' | 'failed';

interface UnbegunChange {
  unbegun: { from: UnbegunState; to: UnbegunState };
}

/** What may have changed of the state of a session since the previous change. */
export type StateChange = LoggedChange | UnbegunChange;

/** Two moments of a session, whose states follow from the logs; null is the time before the first turn. */
export interface LoggedChange {
  from: LogPlace | null;
  to: LogPlace | null;
  /** When the session was last cancelled, as of both moments; null if it was not. */
  cancelledAt: { from: string | null; to: string | null };
}

/** A turn. The transaction has locked the row of its session. */
type Turn = Pick<TurnRow, 'id' | 'session_id' | 'sequence' | 'created_at'>;

/**
 * The change that the start of an accepted turn means. None if it was told, or the end of the turn before it was not:
 * that end tells it, so that changes are told in their order.
 */
export async function turnStarted(db: Transaction<Tables>, turn: Turn): Promise<SessionChanged[]> {
  if (turn.sequence === null || (await toldThrough(db, turn)) > 0) return [];
  const previous = await turnBefore(db, turn);
  const isNext = previous ? previous.sequence === turn.sequence - 1 && previous.archived === 1 : turn.sequence === 1;
  if (!isNext) return [];
  const cancelledAt = await cancellation(db, turn.session_id, turn.created_at);
  return tell(db, turn, { from: endOf(previous), marks: [1], cancelledAt });
}

/** The changes that entries of a turn's log mean, and after its end those of a next turn that has begun. */
export async function turnRecorded(
  db: Transaction<Tables>,
  turn: Turn,
  entries: readonly LogEntry[],
): Promise<SessionChanged[]> {
  const { id: turnId, session_id: sessionId } = turn;
  const [first, last] = [entries[0], entries.at(-1)];
  // A turn that ends in a queue was never one of its session's.
  if (turn.sequence === null || !first || !last) return [];
  const told = await toldThrough(db, turn);
  const marks = stateMarks(entries).filter((ordinal) => ordinal > told);
  if (marks.length === 0) return [];
  const next = await turnAfter(db, turn);
  // Something of a later turn was told while this log could not be read.
  if (next && next.told_through > 0) return [];
  // What came before the entries was told, or there was no webhook.
  const before = Math.max(told, first.ordinal - 1);
  const from = before > 0 ? { turnId, ordinal: before } : endOf(await turnBefore(db, turn));
  const isOver = last.record.kind === 'turn.done';
  const cancelledAt = await cancellation(db, sessionId, isOver ? next?.created_at : turn.created_at);
  // The turn had ended when the session was cancelled: these are two changes.
  const isLate = isOver && cancelledAt !== null && cancelledAt > last.record.at;
  const changes = await tell(db, turn, { from, marks, cancelledAt: isLate ? null : cancelledAt });
  if (!isOver) return changes;
  const end = { turnId, ordinal: last.ordinal };
  if (isLate) changes.push(changeOf(sessionId, { from: end, to: end, cancelledAt: { from: null, to: cancelledAt } }));
  if (next) changes.push(...(await tell(db, next, { from: end, marks: [1], cancelledAt })));
  return changes;
}

/** The columns of a request that say it. */
export const UNBEGUN = ['queue_number', 'first_turn_id', 'cancelled_at', 'start_error'] as const;

type Unbegun = Pick<Selectable<SessionRequestsTable>, (typeof UNBEGUN)[number]>;

/** The state of a session that has no turn, but messages for one; undefined if it was not given any. */
export function unbegunState(request: Unbegun): UnbegunState | undefined {
  if (request.queue_number !== null) return 'queued';
  if (request.first_turn_id !== null) return 'pending';
  if (request.cancelled_at !== null) return 'interrupted';
  return request.start_error === null ? undefined : 'failed';
}

/** The change of a session that has no turn; none if it has one. */
export async function unbegunChanged(
  db: Transaction<Tables>,
  sessionId: string,
  { from, to }: { from: UnbegunState | undefined; to: UnbegunState | undefined },
): Promise<SessionChanged[]> {
  if (!from || !to || from === to) return [];
  if (await turnBefore(db, { session_id: sessionId, sequence: null })) return [];
  return [changeOf(sessionId, { unbegun: { from, to } })];
}

/**
 * The change that the cancellation of a session means. While a turn is not archived, or its first one is being started,
 * its end tells it. `before`: its state if it had no turn.
 */
export async function sessionCancelled(
  db: Transaction<Tables>,
  sessionId: string,
  { before, ...cancelledAt }: { from: string | null; to: string; before: UnbegunState | undefined },
): Promise<SessionChanged[]> {
  const last = await turnBefore(db, { session_id: sessionId, sequence: null });
  if (last && last.archived === 0) return [];
  if (!last && before) return unbegunChanged(db, sessionId, { from: before, to: 'interrupted' });
  const place = endOf(last);
  return [changeOf(sessionId, { from: place, to: place, cancelledAt })];
}

/** The change that the end of the idle timeout after a session's last turn means; none if another turn runs. */
export async function idleEnded(db: Transaction<Tables>, sessionId: string): Promise<SessionChanged[]> {
  const last = await turnBefore(db, { session_id: sessionId, sequence: null });
  const from = endOf(last);
  if (!last || !from || last.archived === 0) return [];
  await db
    .updateTable('turns')
    .set({ told_through: last.archived_through + 1 })
    .where('id', '=', last.id)
    .execute();
  const cancelledAt = await cancellation(db, sessionId, undefined);
  const to: LogPlace = { ...from, isIdleOver: true };
  return [changeOf(sessionId, { from, to, cancelledAt: { from: cancelledAt, to: cancelledAt } })];
}

async function tell(
  db: Transaction<Tables>,
  { id, session_id: sessionId }: Turn,
  { from, marks, cancelledAt }: { from: LogPlace | null; marks: number[]; cancelledAt: string | null },
): Promise<SessionChanged[]> {
  const places = marks.map((ordinal): LogPlace => ({ turnId: id, ordinal }));
  await db
    .updateTable('turns')
    .set({ told_through: marks.at(-1) })
    .where('id', '=', id)
    .execute();
  return places.map((to, i) =>
    changeOf(sessionId, { from: places[i - 1] ?? from, to, cancelledAt: { from: cancelledAt, to: cancelledAt } }),
  );
}

function changeOf(sessionId: string, change: StateChange): SessionChanged {
  return { type: 'session.changed', sessionId, change };
}

/** When a session was last cancelled, if that was before `until`. */
async function cancellation(db: Transaction<Tables>, sessionId: string, until: string | undefined) {
  const request = await db
    .selectFrom('session_requests')
    .select('cancelled_at')
    .where('session_id', '=', sessionId)
    .executeTakeFirst();
  const at = request?.cancelled_at ?? null;
  return at !== null && (until === undefined || at < until) ? at : null;
}

async function toldThrough(db: Transaction<Tables>, { id }: Pick<Turn, 'id'>): Promise<number> {
  const row = await db.selectFrom('turns').select('told_through').where('id', '=', id).executeTakeFirst();
  return row?.told_through ?? 0;
}

function endOf(turn: TurnRow | undefined): LogPlace | null {
  if (!turn) return null;
  const { id: turnId, archived_through: ordinal, told_through: told } = turn;
  return { turnId, ordinal, ...(told > ordinal && { isIdleOver: true }) };
}

/** The newest accepted turn before another one; with its sequence null, the newest of all. */
function turnBefore(
  db: Transaction<Tables>,
  { session_id: sessionId, sequence }: Pick<Turn, 'session_id' | 'sequence'>,
): Promise<TurnRow | undefined> {
  return db
    .selectFrom('turns')
    .selectAll()
    .where('session_id', '=', sessionId)
    .where('sequence', 'is not', null)
    .$if(sequence !== null, (query) => query.where('sequence', '<', sequence))
    .orderBy('sequence', 'desc')
    .orderBy('created_at', 'desc')
    .limit(1)
    .executeTakeFirst();
}

function turnAfter(db: Transaction<Tables>, { session_id: sessionId, sequence }: Turn) {
  return db
    .selectFrom('turns')
    .selectAll()
    .where('session_id', '=', sessionId)
    .where('sequence', '>', sequence)
    .orderBy('sequence')
    .orderBy('created_at')
    .limit(1)
    .executeTakeFirst();
}
