import { sql, type Kysely, type Transaction } from 'kysely';
import type { Tables } from './schema.ts';

/** What a new session, or one that begins again, got. `full`: no slot; `queue_full`: no place in the queue either. */
export type Placement = 'slot' | 'queue' | 'full' | 'queue_full';

/** The number of slots, and the time by which it is known who holds them. */
export interface Capacity {
  limit: number;
  now: Date;
}

const MAX_QUEUED = 1_000;

/** A request for a turn that has not become one after this time most likely never will. */
const REQUEST_MS = 60_000;

const COUNTER = 'session-slots';

/**
 * Locks the slots until the transaction ends. First in each transaction, since what is read afterwards must include what
 * others have committed. Returns a number that is higher than all before.
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

/** Where a session would be. Those that wait come before it, also while a slot is free for them. */
export async function place(
  db: Transaction<Tables>,
  { limit, now }: Capacity,
  { takesSlot = true, mayQueue = false }: { takesSlot?: boolean; mayQueue?: boolean } = {},
): Promise<Placement> {
  if (!takesSlot) return 'slot';
  const queued = await queueLength(db);
  if ((await countHolders(db, now)) + queued < limit) return 'slot';
  if (!mayQueue) return 'full';
  return queued < MAX_QUEUED ? 'queue' : 'queue_full';
}

/**
 * The sessions in the queue. Here and below, cross joins and comparisons instead of `is not null`: without statistics,
 * SQLite otherwise scans all sessions instead of an index that has only a few.
 */
export function waiting(db: Kysely<Tables>) {
  return db
    .selectFrom('session_requests')
    .crossJoin('sessions')
    .whereRef('sessions.id', '=', 'session_requests.session_id')
    .where('session_requests.queue_number', '>', 0)
    .where('sessions.deleted_at', 'is', null);
}

export async function queueLength(db: Kysely<Tables>): Promise<number> {
  const { count } = await waiting(db)
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  return count;
}

/** The sessions that hold a slot, once each. Those that need none are not counted. */
export function holders(db: Kysely<Tables>, now: Date) {
  const requestedSince = new Date(now.getTime() - REQUEST_MS).toISOString();
  const requests = db.selectFrom('session_requests').select('session_id').where('takes_slot', '=', 1);
  const held = requests
    .where('first_turn_id', '>', '')
    .unionAll(requests.where('waits_until', '>', now.toISOString()))
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
  // Not a union without duplicates, for which SQLite would scan all sessions in the order of their ids.
  return db.selectFrom('sessions').select('id').where('id', 'in', held).where('deleted_at', 'is', null);
}

export async function countHolders(db: Kysely<Tables>, now: Date): Promise<number> {
  const { count } = await db
    .selectFrom(holders(db, now).as('holders'))
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  return count;
}
