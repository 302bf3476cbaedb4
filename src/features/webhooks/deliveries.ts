import type { Kysely } from 'kysely';
import { addDeliveries, newDelivery, reserve } from './delivery-rows.ts';
import type { DeliveryRow } from './tables.ts';
import type { Tables } from '../../catalog/schema.ts';
import { changeRows, Store } from '../../catalog/store.ts';

/** A lane that a worker has leased: until the lease ends, no other worker sends its deliveries. */
export interface Lane {
  webhookId: string;
  sessionId: string;
  lease: string;
  /** The newest delivery at the time when the lane was taken. */
  lastSequence: number;
}

interface Attempt {
  at: string;
  responseStatus: number | null;
  error: string | null;
}

/**
 * The deliveries to webhooks. The deliveries of one session to one webhook form a lane: they are sent in order, each
 * after the end of the one before.
 */
export class Deliveries extends Store {
  /** Adds a test delivery to a webhook, and returns its id. */
  async ping(webhookId: string): Promise<string> {
    const id = await this.db.transaction().execute(async (db) => {
      const sequence = await reserve(db, 1);
      const row = { ...newDelivery(webhookId, sequence), type: 'ping' as const, session_id: '' };
      await addDeliveries(db, [row]);
      return row.id;
    });
    this.context.outbox.announce(['deliveries']);
    return id;
  }

  /** Takes up to `limit` lanes of a webhook that are due, until `until`. */
  async claim(
    webhookId: string,
    { now, until, limit, lease }: { now: string; until: string; limit: number; lease: string },
  ): Promise<Lane[]> {
    const due = await this.db
      .selectFrom('delivery_lanes')
      .select(['session_id', 'due_at', 'last_sequence'])
      .where('webhook_id', '=', webhookId)
      .where('due_at', '<=', now)
      .orderBy('due_at')
      .limit(limit)
      .execute();
    const lanes: Lane[] = [];
    for (const { session_id: sessionId, due_at: dueAt, last_sequence: lastSequence } of due) {
      const lane = this.db
        .updateTable('delivery_lanes')
        .where('webhook_id', '=', webhookId)
        .where('session_id', '=', sessionId);
      // `due_at` differs if another worker has just taken the lane.
      const isTaken = await changeRows(lane.set({ lease, due_at: until }).where('due_at', '=', dueAt));
      if (isTaken) lanes.push({ webhookId, sessionId, lease, lastSequence });
    }
    return lanes;
  }

  /** The first pending delivery of a lane. */
  async next({ webhookId, sessionId }: Lane): Promise<DeliveryRow | undefined> {
    return this.db
      .selectFrom('deliveries')
      .selectAll()
      .where('webhook_id', '=', webhookId)
      .where('session_id', '=', sessionId)
      .where('status', '=', 'pending')
      .orderBy('sequence')
      .limit(1)
      .executeTakeFirst();
  }

  /**
   * Records an attempt: the delivery ends (`delivered` or `failed`), or stays pending, and the lane is free again at
   * `dueAt`. False, and without effect, if the lease has ended and another worker has taken the lane.
   */
  async record(
    lane: Lane,
    delivery: DeliveryRow,
    {
      attempt,
      ...next
    }: { attempt: Attempt } & ({ status: 'delivered' | 'failed'; until: string } | { dueAt: string }),
  ): Promise<boolean> {
    const isOver = 'status' in next;
    return this.db.transaction().execute(async (db) => {
      const due = isOver ? { due_at: next.until } : { due_at: next.dueAt, lease: null };
      if (!(await changeRows(heldLane(db, lane).set(due)))) return false;
      await db
        .updateTable('deliveries')
        .set({
          ...(isOver && { status: next.status }),
          attempts: delivery.attempts + 1,
          last_attempt_at: attempt.at,
          response_status: attempt.responseStatus,
          error: attempt.error,
        })
        .where('id', '=', delivery.id)
        .execute();
      return true;
    });
  }

  /** Removes a delivery that turned out to be empty, and keeps the lane until `until`. False as for `record`. */
  async drop(lane: Lane, delivery: DeliveryRow, until: string): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      const isHeld = await changeRows(heldLane(db, lane).set({ due_at: until }));
      if (isHeld) await db.deleteFrom('deliveries').where('id', '=', delivery.id).execute();
      return isHeld;
    });
  }

  /** Frees a lane: it is deleted if `last` is its newest delivery, and is otherwise due again at `dueAt`. */
  async release(lane: Lane, { last, dueAt }: { last: number; dueAt: string }) {
    const deleted = this.db
      .deleteFrom('delivery_lanes')
      .where('webhook_id', '=', lane.webhookId)
      .where('session_id', '=', lane.sessionId)
      .where('lease', '=', lane.lease)
      .where('last_sequence', '<=', last);
    if (!(await changeRows(deleted))) await heldLane(this.db, lane).set({ due_at: dueAt, lease: null }).execute();
  }

  /** When the next lane of any webhook is due; undefined if there is none. */
  async nextDue(): Promise<string | undefined> {
    const { due } = await this.db
      .selectFrom('delivery_lanes')
      .select((eb) => eb.fn.min('due_at').as('due'))
      .executeTakeFirstOrThrow();
    return due ?? undefined;
  }

  /** When the oldest pending delivery was created; undefined if there is none. */
  async oldestPending(): Promise<string | undefined> {
    const { oldest } = await this.db
      .selectFrom('deliveries')
      .select((eb) => eb.fn.min('created_at').as('oldest'))
      .where('status', '=', 'pending')
      .executeTakeFirstOrThrow();
    return oldest ?? undefined;
  }

  async get(id: string): Promise<DeliveryRow | undefined> {
    return this.db.selectFrom('deliveries').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** Up to `limit` deliveries of a webhook, newest first, below the sequence `before`. */
  async list(webhookId: string, before: number | undefined, limit: number): Promise<DeliveryRow[]> {
    let query = this.db.selectFrom('deliveries').selectAll().where('webhook_id', '=', webhookId);
    if (before !== undefined) query = query.where('sequence', '<', before);
    return query.orderBy('sequence', 'desc').limit(limit).execute();
  }

  /** Deletes the ended deliveries that were created before `time`. */
  async forget(time: string): Promise<void> {
    await this.db
      .deleteFrom('deliveries')
      .where('status', 'in', ['delivered', 'failed'])
      .where('created_at', '<', time)
      .execute();
  }
}

/** Selects a lane while the worker still has the lease. */
function heldLane(db: Kysely<Tables>, { webhookId, sessionId, lease }: Lane) {
  return db
    .updateTable('delivery_lanes')
    .where('webhook_id', '=', webhookId)
    .where('session_id', '=', sessionId)
    .where('lease', '=', lease);
}
