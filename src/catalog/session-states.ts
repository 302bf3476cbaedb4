import type { Kysely, Selectable, Transaction } from 'kysely';
import { isOpenTurnState, type SessionState } from '../core/session-state.ts';
import { addSeconds } from '../core/text.ts';
import type { SessionChanged } from './outbox.ts';
import type { SessionRequestsTable, SessionRow, Tables, TurnRow } from './schema.ts';
import { isOfRun } from './session-types.ts';

/** Later than any other time. */
export const FOREVER = '9999-12-31T23:59:59.999Z';

/** Two states of a session, one after the other. */
export interface StateChange {
  from: SessionState;
  to: SessionState;
}

/** What the state of a session derives from. */
const REQUEST = [
  'queue_number',
  'first_turn_id',
  'cancelled_at',
  'start_error',
  'start_failed_at',
  'idle_timeout_s',
  'waits_until',
  'idle_ends_at',
] as const;

const TURN = [
  'id',
  'session_id',
  'sequence',
  'created_at',
  'archived',
  'archived_through',
  'state',
  'state_at',
  'leaves',
] as const;

type Request = Pick<Selectable<SessionRequestsTable>, (typeof REQUEST)[number]>;
type Turn = Pick<TurnRow, (typeof TURN)[number]>;

interface Derived {
  /** Null: the version before has archived the end of the last turn, which is to be derived. */
  state: SessionState | null;
  endedAt: string | null;
}

/**
 * Stores and returns the state change of a session whose turn was accepted. None if a later turn was accepted before,
 * or if the end of the previous turn is not archived: that end then returns both changes, in order.
 */
export async function turnAccepted(db: Transaction<Tables>, turn: Turn): Promise<SessionChanged[]> {
  const [newest, previous] = await newestTurns(db, turn.session_id, 2);
  if (newest?.id !== turn.id || previous?.archived === 0) return [];
  return storeState(db, await sessionOf(db, turn.session_id), { last: turn });
}

/**
 * Stores and returns the state changes of a session whose turn has changed; after its end, also those by the next turn.
 * @param next from `turnAfter`
 */
export async function turnChanged(
  db: Transaction<Tables>,
  turn: Turn,
  next: Turn | undefined,
): Promise<SessionChanged[]> {
  // A turn that has ended in the queue of its session was never one of its turns. The session follows a later turn
  // already if this log could not be read.
  if (turn.sequence === null || (next && next.archived_through > 0)) return [];
  let session = await sessionOf(db, turn.session_id);
  if (session?.request && turn.archived === 1 && !next) {
    await noteEnd(db, turn);
    session = await sessionOf(db, turn.session_id);
  }
  const changes = await storeState(db, session, { last: turn, until: next?.created_at });
  if (!next || turn.archived === 0) return changes;
  return [...changes, ...(await storeState(db, await sessionOf(db, turn.session_id), { last: next }))];
}

/** Called when a session's request changed or its last turn was removed. The caller has locked the session's row. */
export async function sessionChanged(db: Transaction<Tables>, sessionId: string): Promise<SessionChanged[]> {
  const [last] = await newestTurns(db, sessionId, 1);
  const session = await sessionOf(db, sessionId);
  // Its first turn is being started: the end of this turn returns the change.
  if (!last && session?.state === 'pending' && session.request?.cancelled_at && (await hasOpenTurn(db, sessionId))) {
    return [];
  }
  return storeState(db, session, { last });
}

/** Whether a turn of a session is requested, runs, or has ended and is not archived. */
export async function hasOpenTurn(db: Transaction<Tables>, sessionId: string): Promise<boolean> {
  const open = db.selectFrom('turns').select('id').where('session_id', '=', sessionId).where('archived', '=', 0);
  return (await open.limit(1).executeTakeFirst()) !== undefined;
}

interface Session {
  id: string;
  type: SessionRow['type'];
  state: SessionState | null;
  ended_at: string | null;
  /** Undefined if it is of another API. */
  request: Request | undefined;
}

async function sessionOf(db: Transaction<Tables>, sessionId: string): Promise<Session | undefined> {
  const row = await db
    .selectFrom('sessions')
    .leftJoin('session_requests as request', 'request.session_id', 'sessions.id')
    .select(['sessions.id', 'type', 'state', 'ended_at', 'request.session_id', ...REQUEST])
    .where('sessions.id', '=', sessionId)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
  if (!row) return undefined;
  const { id, type, state, ended_at, session_id: ofRequest, ...request } = row;
  return { id, type, state, ended_at, request: ofRequest === null ? undefined : request };
}

/**
 * Derives the state of a session from its request and its last turn, and stores it, in the transaction that changes one of
 * them and has locked the session's row. Returns the changes, for webhooks.
 * @param about `until`: when the next turn was created; a later cancellation of the session does not concern `last`
 */
async function storeState(
  db: Transaction<Tables>,
  session: Session | undefined,
  { last, until }: { last: Turn | undefined; until?: string | undefined },
): Promise<SessionChanged[]> {
  if (!session) return [];
  const { id: sessionId, type, state: from, ended_at, request } = session;
  const at = request?.cancelled_at ?? null;
  const cancelledAt = at !== null && (until === undefined || at < until) ? at : null;
  const stateIf = (cancelled_at: string | null, isPast: boolean) =>
    sessionState({ type, request: request && { ...request, cancelled_at }, last, isPast });
  const now = stateIf(cancelledAt, until !== undefined);
  // The turn had ended when the session was cancelled, and its end is archived only now: these are two changes.
  const isLate = isOpenTurnState(from) && cancelledAt !== null && cancelledAt > (last?.state_at ?? '');
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
  last: Pick<Turn, 'created_at' | 'archived' | 'state' | 'state_at' | 'leaves'> | undefined;
  /** A turn or a cancellation has followed: the request no longer contains whether the session waited. */
  isPast: boolean;
}

/** The state of a session by its request and its last turn. */
export function sessionState({ type, request, last, isPast }: Known): Derived {
  if (request && request.queue_number !== null) return open('queued');
  const cancelledAt = request?.cancelled_at ?? '';
  if (!last) {
    if (request && request.first_turn_id !== null) return open('pending');
    if (cancelledAt) return { state: 'cancelled', endedAt: cancelledAt };
    const isRejected = request && request.start_error !== null;
    if (isRejected) return { state: 'error', endedAt: request.start_failed_at };
    return open(isOfRun({ type }) ? 'pending' : 'idle');
  }
  if (last.archived === 0) return open(isOpenTurnState(last.state) ? last.state : 'running');
  const endedAt = last.state_at ?? last.created_at;
  if (cancelledAt && cancelledAt >= last.created_at)
    return { state: 'cancelled', endedAt: later(cancelledAt, endedAt) };
  const state = last.leaves;
  if (state !== null && isOpen(state)) return open(state);
  if (state !== 'idle') return { state, endedAt };
  const timeout = request && (isPast ? request.idle_timeout_s : request.idle_ends_at);
  const waits = request ? timeout !== null : !isOfRun({ type });
  return waits ? open('idle') : { state: 'completed', endedAt: request?.waits_until ?? endedAt };
}

function open(state: SessionState): Derived {
  return { state, endedAt: null };
}

function turnsOf(db: Kysely<Tables>, sessionId: string) {
  return db.selectFrom('turns').select(TURN).where('session_id', '=', sessionId);
}

/** The newest accepted turns of a session, the newest first. */
function newestTurns(db: Kysely<Tables>, sessionId: string, limit: number): Promise<Turn[]> {
  const accepted = turnsOf(db, sessionId).where('sequence', 'is not', null);
  // A session workflow whose state is older than the catalog's assigns some numbers twice.
  return accepted.orderBy('sequence', 'desc').orderBy('created_at', 'desc').limit(limit).execute();
}

/** The turn that follows another one in its session. */
export function turnAfter(db: Kysely<Tables>, { session_id: sessionId, sequence }: Turn): Promise<Turn | undefined> {
  const later = turnsOf(db, sessionId).where('sequence', '>', sequence);
  return later.orderBy('sequence').orderBy('created_at').limit(1).executeTakeFirst();
}

/** Stores with the request of a session how long it waits after its last turn, and when it may be deleted. */
async function noteEnd(
  db: Transaction<Tables>,
  { session_id: sessionId, created_at: createdAt, state_at, leaves }: Turn,
): Promise<void> {
  // Changes nothing, but locks the row: it may be cancelled at this moment.
  const request = await db
    .updateTable('session_requests')
    .set({ session_id: sessionId })
    .where('session_id', '=', sessionId)
    .returning(['idle_timeout_s', 'delete_after_min', 'cancelled_at'])
    .executeTakeFirst();
  if (!request || leaves === null) return;
  const at = state_at ?? createdAt;
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

/** Until when a session waits after its last turn; null: for nothing. */
export function waitOf(leaves: SessionState, at: string, idleSeconds: number | null): string | null {
  if (leaves === 'waiting_client' || leaves === 'waiting_person') return FOREVER;
  return leaves === 'idle' && idleSeconds !== null ? addSeconds(at, idleSeconds) : null;
}

/** Whether something follows the turn in any case. */
function isOpen(leaves: SessionState): boolean {
  return leaves === 'waiting_client' || leaves === 'waiting_person' || leaves === 'pending';
}

function later(a: string, b: string): string {
  return a > b ? a : b;
}
