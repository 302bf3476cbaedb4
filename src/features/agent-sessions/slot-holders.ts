import { sql, type Kysely, type Transaction } from 'kysely';
import { FOREVER } from '../../catalog/session-states.ts';
import type { Tables } from '../../catalog/schema.ts';

/**
 * Why a session gets neither a slot nor a position in the queue: all slots, or all slots of its subject's share, are
 * taken, or the queue, or the subject's share of it, is full.
 */
const REFUSALS = ['full', 'share_full', 'queue_full', 'queue_share_full'] as const;

export type RefusedPlacement = (typeof REFUSALS)[number];

/** The outcome for a new or restarted session. */
export type Placement = 'slot' | 'queue' | RefusedPlacement;

export function isRefused(placement: string): placement is RefusedPlacement {
  return REFUSALS.some((refusal) => refusal === placement);
}

/** The number of slots, the share of one subject, and the time for which their use is determined. */
export interface Capacity {
  limit: number;
  /** At most `limit`. */
  perSubject: number;
  now: Date;
}

/** The numbers of a subject's sessions that occupy a slot, and that are queued. */
interface Use {
  active: number;
  queued: number;
}

export const MAX_QUEUED_SESSIONS = 1_000;

/** A turn that is still only requested after this time most likely never starts. */
const REQUEST_MS = 60_000;

const COUNTER = 'session-slots';

/**
 * Locks the slots until the transaction ends. Called first in a transaction, since its later reads must include what
 * other transactions have committed. Returns a number that is higher than all earlier ones.
 */
export async function lockSlots(db: Transaction<Tables>): Promise<number> {
  const { value } = await db
    .insertInto('counters')
    .values({ name: COUNTER, value: 1 })
    .onConflict((conflict) => conflict.column('name').doUpdateSet((eb) => ({ value: eb('counters.value', '+', 1) })))
    .returning('value')
    .executeTakeFirstOrThrow();
  return value;
}

/** The placement of a session. Queued sessions that could begin come before it, even while slots are free for them. */
export async function place(
  db: Transaction<Tables>,
  capacity: Capacity,
  { subject, takesSlot = true, mayQueue = false }: { subject: string; takesSlot?: boolean; mayQueue?: boolean },
): Promise<Placement> {
  if (!takesSlot) return 'slot';
  const uses = await usesBySubject(db, capacity.now);
  const [room, ownRoom] = [roomOfAll(uses, capacity), roomOf(uses, subject, capacity)];
  if (room > 0 && ownRoom > 0) return 'slot';
  if (!mayQueue) return room > 0 ? 'share_full' : 'full';
  if (totalOf(uses).queued >= MAX_QUEUED_SESSIONS) return 'queue_full';
  return useOf(uses, subject).queued < queuedPerSubject(capacity) ? 'queue' : 'queue_share_full';
}

/** The number of sessions that one subject may have in the queue: the same share as of the slots. */
export function queuedPerSubject({ limit, perSubject }: Pick<Capacity, 'limit' | 'perSubject'>): number {
  return Math.ceil((MAX_QUEUED_SESSIONS * perSubject) / limit);
}

/** The use of slots and queue by all subjects, and the number of sessions that this subject could begin now. */
export async function usageFor(
  db: Kysely<Tables>,
  subject: string,
  capacity: Capacity,
): Promise<Use & { available: number }> {
  const uses = await usesBySubject(db, capacity.now);
  const available = Math.max(Math.min(roomOfAll(uses, capacity), roomOf(uses, subject, capacity)), 0);
  return { ...totalOf(uses), available };
}

/**
 * The queued sessions that can begin now, in order. Sessions of a subject that has used its share are skipped, so that
 * they do not delay other subjects.
 */
export async function admissible(db: Transaction<Tables>, { limit, perSubject, now }: Capacity): Promise<string[]> {
  const uses = await usesBySubject(db, now);
  let free = limit - uses.values().reduce((sum, { active }) => sum + Math.min(active, perSubject), 0);
  if (free <= 0) return [];
  // The whole queue, at most `MAX_QUEUED_SESSIONS`, since the first sessions may all be of one subject.
  const queue = await waiting(db)
    .select(['session_requests.session_id', 'sessions.subject_id'])
    .orderBy('session_requests.queue_number')
    .execute();
  const next: string[] = [];
  for (const { session_id: sessionId, subject_id: subject } of queue) {
    const use = useOf(uses, subject);
    if (use.active >= perSubject) continue;
    uses.set(subject, { ...use, active: use.active + 1 });
    next.push(sessionId);
    if (--free === 0) break;
  }
  return next;
}

/**
 * The number of sessions that could begin after the queued ones. Sessions above a subject's share do not count here:
 * messages to idle sessions need no free slot, and would otherwise let one subject block all others.
 */
function roomOfAll(uses: Map<string, Use>, { limit, perSubject }: Capacity): number {
  return limit - uses.values().reduce((sum, { active, queued }) => sum + Math.min(active + queued, perSubject), 0);
}

/** The number of sessions that one subject could begin after its queued ones, by its share alone. */
function roomOf(uses: Map<string, Use>, subject: string, { perSubject }: Capacity): number {
  const { active, queued } = useOf(uses, subject);
  return perSubject - active - queued;
}

function useOf(uses: Map<string, Use>, subject: string): Use {
  return uses.get(subject) ?? { active: 0, queued: 0 };
}

function totalOf(uses: Map<string, Use>): Use {
  const total = { active: 0, queued: 0 };
  for (const { active, queued } of uses.values()) {
    total.active += active;
    total.queued += queued;
  }
  return total;
}

async function usesBySubject(db: Kysely<Tables>, now: Date): Promise<Map<string, Use>> {
  const uses = new Map<string, Use>();
  const countOf = db.fn.countAll<number>().as('count');
  const held = await holders(db, now).select(['subject_id', countOf]).groupBy('subject_id').execute();
  for (const { subject_id: subject, count } of held) uses.set(subject, { active: count, queued: 0 });
  const queue = await waiting(db).select(['sessions.subject_id', countOf]).groupBy('sessions.subject_id').execute();
  for (const { subject_id: subject, count } of queue) uses.set(subject, { ...useOf(uses, subject), queued: count });
  return uses;
}

/**
 * The queued sessions. This and the queries below use cross joins, and comparisons instead of `is not null`: without
 * statistics, SQLite otherwise scans all sessions instead of a small partial index.
 */
function waiting(db: Kysely<Tables>) {
  return db
    .selectFrom('session_requests')
    .crossJoin('sessions')
    .whereRef('sessions.id', '=', 'session_requests.session_id')
    .where('session_requests.queue_number', '>', 0)
    .where('sessions.deleted_at', 'is', null);
}

export async function isAnyWaiting(db: Kysely<Tables>): Promise<boolean> {
  return (await waiting(db).select('session_requests.session_id').limit(1).executeTakeFirst()) !== undefined;
}

/**
 * The sessions that occupy a slot, once each: their first turn is to be started, they have a turn that has not ended,
 * or calls are pending on their last turn. Idle sessions and sessions that need no slot are not included.
 */
export function holders(db: Kysely<Tables>, now: Date) {
  const requestedSince = new Date(now.getTime() - REQUEST_MS).toISOString();
  const requests = db.selectFrom('session_requests').select('session_id').where('takes_slot', '=', 1);
  const held = requests
    .where('first_turn_id', '>', '')
    .unionAll(requests.where('waits_until', '=', FOREVER))
    .unionAll(
      db
        .selectFrom('turns')
        .crossJoin('session_requests')
        .select('session_requests.session_id')
        .whereRef('session_requests.session_id', '=', 'turns.session_id')
        .where('session_requests.takes_slot', '=', 1)
        // A literal, so that SQLite uses the partial index.
        .where('turns.archived', '=', sql.lit(0))
        .where((eb) => eb.or([eb('turns.sequence', 'is not', null), eb('turns.created_at', '>', requestedSince)])),
    );
  // `in` instead of a union without duplicates, for which SQLite would scan all sessions in the order of their ids.
  return db.selectFrom('sessions').where('id', 'in', held).where('deleted_at', 'is', null);
}
