import type { Kysely, Transaction } from 'kysely';
import { OPEN_TURN_STATES, type OpenTurnState, type SessionState } from '../core/session-state.ts';
import type { TurnDone } from '../core/records.ts';
import type { SessionChanged } from './outbox.ts';
import type { SessionRow, Tables, TurnRow } from './schema.ts';
import type { SessionRequestRow } from './session-requests.ts';
import { isOfRun } from './session-types.ts';

/** Later than any other time. */
export const FOREVER = '9999-12-31T23:59:59.999Z';

/** Two states of a session, one after the other. */
export interface StateChange {
  from: SessionState;
  to: SessionState;
}

type Request = Pick<
  SessionRequestRow,
  | 'queue_number'
  | 'first_turn_id'
  | 'cancelled_at'
  | 'start_error'
  | 'start_failed_at'
  | 'idle_timeout_s'
  | 'waits_until'
  | 'idle_ends_at'
>;

type Turn = Pick<
  TurnRow,
  'session_id' | 'sequence' | 'created_at' | 'archived' | 'archived_through' | 'state' | 'state_at' | 'leaves'
>;

interface Derived {
  /** Null: the version before has archived the end of the last turn, which is to be derived. */
  state: SessionState | null;
  endedAt: string | null;
}

/**
 * A turn was accepted. The state of its session follows it, unless the turn before it has not ended here: that end is told
 * first.
 */
export async function turnAccepted(db: Transaction<Tables>, turn: Turn): Promise<SessionChanged[]> {
  const previous = await turnBefore(db, turn);
  return previous?.archived === 0 ? [] : storeState(db, turn.session_id, turn);
}

/** The state of a turn has changed; after its end, the session follows the next turn, if there is one. */
export async function turnChanged(db: Transaction<Tables>, turn: Turn): Promise<SessionChanged[]> {
  // A turn that has ended in the queue of its session was never one of its turns.
  if (turn.sequence === null) return [];
  const next = await turnAfter(db, turn);
  // The session follows a later turn already, since this log could not be read.
  if (next && next.archived_through > 0) return [];
  const changes = await storeState(db, turn.session_id, turn, next?.created_at);
  if (next && turn.archived === 1) changes.push(...(await storeState(db, turn.session_id, next)));
  return changes;
}

/** The request of a session has changed, or its last turn was removed. */
export async function sessionChanged(db: Transaction<Tables>, sessionId: string): Promise<SessionChanged[]> {
  return storeState(db, sessionId, await turnBefore(db, { session_id: sessionId, sequence: null }));
}

/**
 * Derives the state of a session from its request and its last turn, and stores it, in the transaction that changes one of
 * them and has locked the session's row. Returns what to tell webhooks.
 * @param until when the next turn was created: what happens to the session later is not told of this one
 */
async function storeState(
  db: Transaction<Tables>,
  sessionId: string,
  last: Turn | undefined,
  until?: string,
): Promise<SessionChanged[]> {
  const session = await db
    .selectFrom('sessions')
    .leftJoin('session_requests as request', 'request.session_id', 'sessions.id')
    .select(['type', 'state', 'ended_at'])
    .select(['request.session_id', 'queue_number', 'first_turn_id', 'cancelled_at', 'start_error', 'start_failed_at'])
    .select(['waits_until', 'idle_timeout_s', 'idle_ends_at'])
    .where('id', '=', sessionId)
    .executeTakeFirst();
  if (!session) return [];
  const { type, state: from, ended_at, session_id, cancelled_at: at, ...rest } = session;
  const cancelledAt = at !== null && (until === undefined || at < until) ? at : null;
  const stateIf = (cancelled_at: string | null, isPast: boolean) =>
    derived({ type, request: session_id === null ? undefined : { ...rest, cancelled_at }, last, isPast });
  const now = stateIf(cancelledAt, until !== undefined);
  // The turn had ended when the session was cancelled, and its end is told only now: these are two changes.
  const isLate = isOpenTurn(from) && cancelledAt !== null && cancelledAt > (last?.state_at ?? '');
  const states = [from, ...(isLate ? [stateIf(null, true).state] : []), now.state];
  if (from === now.state && ended_at === now.endedAt) return [];
  await db
    .updateTable('sessions')
    .set({ state: now.state, ended_at: now.endedAt })
    .where('id', '=', sessionId)
    .execute();
  return states.flatMap((to, i): SessionChanged[] => {
    const before = states[i - 1];
    if (!before || !to || before === to) return [];
    return [{ type: 'session.changed', sessionId, change: { from: before, to } }];
  });
}

interface Known {
  type: SessionRow['type'];
  request: Request | undefined;
  last: Turn | undefined;
  /** Something has followed: the request says no more whether the session waits. */
  isPast: boolean;
}

function derived({ type, request, last, isPast }: Known): Derived {
  if (request && request.queue_number !== null) return open('queued');
  const cancelledAt = request?.cancelled_at ?? '';
  if (!last) {
    if (request && request.first_turn_id !== null) return open('pending');
    if (cancelledAt) return { state: 'cancelled', endedAt: cancelledAt };
    const isRejected = request && request.start_error !== null;
    if (isRejected) return { state: 'error', endedAt: request.start_failed_at };
    return open(isOfRun({ type }) ? 'pending' : 'idle');
  }
  if (last.archived === 0) return open(isOpenTurn(last.state) ? last.state : 'running');
  const endedAt = last.state_at ?? last.created_at;
  if (cancelledAt >= last.created_at) return { state: 'cancelled', endedAt: later(cancelledAt, endedAt) };
  const state = last.leaves;
  if (state !== null && isOpen(state)) return open(state);
  if (state !== 'idle') return { state, endedAt };
  const timeout = request && (isPast ? request.idle_timeout_s : request.idle_ends_at);
  const waits = request ? timeout !== null : !isOfRun({ type });
  return waits ? open('idle') : { state: 'completed', endedAt: request?.waits_until ?? endedAt };
}

function isOpenTurn(state: string | null): state is OpenTurnState {
  return OPEN_TURN_STATES.some((one) => one === state);
}

function open(state: SessionState): Derived {
  return { state, endedAt: null };
}

const TURN = [
  'session_id',
  'sequence',
  'created_at',
  'archived',
  'archived_through',
  'state',
  'state_at',
  'leaves',
] as const;

/** The newest accepted turn before another one; with its sequence null, the newest of all. */
function turnBefore(
  db: Kysely<Tables>,
  { session_id: sessionId, sequence }: Pick<Turn, 'session_id' | 'sequence'>,
): Promise<Turn | undefined> {
  return (
    db
      .selectFrom('turns')
      .select(TURN)
      .where('session_id', '=', sessionId)
      .where('sequence', 'is not', null)
      .$if(sequence !== null, (query) => query.where('sequence', '<', sequence))
      .orderBy('sequence', 'desc')
      // A session workflow whose state is older than the catalog's assigns some numbers twice.
      .orderBy('created_at', 'desc')
      .limit(1)
      .executeTakeFirst()
  );
}

function turnAfter(db: Kysely<Tables>, { session_id: sessionId, sequence }: Turn): Promise<Turn | undefined> {
  return db
    .selectFrom('turns')
    .select(TURN)
    .where('session_id', '=', sessionId)
    .where('sequence', '>', sequence)
    .orderBy('sequence')
    .orderBy('created_at')
    .limit(1)
    .executeTakeFirst();
}

/**
 * Notes with the request of a session how long it waits after its last turn, and when it may be deleted, in the
 * transaction that archives the turn's end.
 */
export async function noteEnd(
  db: Transaction<Tables>,
  { session_id: sessionId, sequence, created_at: createdAt }: TurnRow,
  { at, leaves }: Pick<TurnDone, 'at'> & { leaves: SessionState },
): Promise<void> {
  // Changes nothing, but locks the row: it may be cancelled at this moment.
  const request = await db
    .updateTable('session_requests')
    .set({ session_id: sessionId })
    .where('session_id', '=', sessionId)
    .where((eb) => {
      const later = eb.selectFrom('turns').select('id').where('turns.session_id', '=', sessionId);
      return eb.not(eb.exists(later.where('sequence', '>', sequence)));
    })
    .returning(['idle_timeout_s', 'delete_after_min', 'cancelled_at'])
    .executeTakeFirst();
  if (!request) return;
  const isCancelled = (request.cancelled_at ?? '') >= createdAt;
  const waitsUntil = isCancelled ? null : waitOf(leaves, at, request.idle_timeout_s);
  const endsAt = isOpen(leaves) && !isCancelled ? null : (waitsUntil ?? at);
  await db
    .updateTable('session_requests')
    .set({
      waits_until: waitsUntil,
      idle_ends_at: leaves === 'idle' ? waitsUntil : null,
      delete_at: endsAt && deletionOf(endsAt, request.delete_after_min),
    })
    .where('session_id', '=', sessionId)
    .execute();
}

/** When a session that has ended may be deleted; null: never. */
export function deletionOf(endedAt: string, afterMinutes: number | null): string | null {
  return afterMinutes === null ? null : addSeconds(endedAt, afterMinutes * 60);
}

function waitOf(leaves: SessionState, at: string, idleSeconds: number | null): string | null {
  if (leaves === 'waiting_client' || leaves === 'waiting_person') return FOREVER;
  return leaves === 'idle' && idleSeconds !== null ? addSeconds(at, idleSeconds) : null;
}

/** Whether something follows the turn in any case. */
function isOpen(leaves: SessionState): boolean {
  return leaves === 'waiting_client' || leaves === 'waiting_person' || leaves === 'pending';
}

function addSeconds(at: string, seconds: number): string {
  return new Date(Date.parse(at) + seconds * 1000).toISOString();
}

function later(a: string, b: string): string {
  return a > b ? a : b;
}
