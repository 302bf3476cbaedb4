import { randomInt } from 'node:crypto';
import type { Insertable, Transaction } from 'kysely';
import { ROW_BATCH_SIZE } from '../../catalog/blob-references.ts';
import type { Tables } from '../../catalog/schema.ts';
import { DIGITS, ulid } from '../../core/ids.ts';

/** Reserves the next `count` numbers and returns the first. */
export async function reserve(db: Transaction<Tables>, count: number): Promise<number> {
  const { value } = await db
    .insertInto('counters')
    .values({ name: 'events', value: count })
    .onConflict((conflict) =>
      conflict.column('name').doUpdateSet((eb) => ({ value: eb('counters.value', '+', count) })),
    )
    .returning('value')
    .executeTakeFirstOrThrow();
  return value - count + 1;
}

export function newDelivery(webhookId: string, sequence: number) {
  const now = Date.now();
  const id = ulid('dlv', now, () => randomInt(DIGITS));
  return { id, webhook_id: webhookId, sequence, created_at: new Date(now).toISOString() };
}

type NewDelivery = Insertable<Tables['deliveries']>;

/**
 * Adds deliveries to the ends of their lanes. The deliveries are inserted first, which locks their webhooks by the
 * foreign keys: the deletion of a webhook takes the same locks in the same order.
 */
export async function addDeliveries(db: Transaction<Tables>, deliveries: NewDelivery[]): Promise<void> {
  for (let from = 0; from < deliveries.length; from += ROW_BATCH_SIZE) {
    const batch = deliveries.slice(from, from + ROW_BATCH_SIZE);
    await db.insertInto('deliveries').values(batch).execute();
  }
  const lanes = new Map(deliveries.map((one) => [`${one.webhook_id} ${one.session_id}`, one]));
  for (const { webhook_id, session_id, sequence: last_sequence, created_at: due_at } of lanes.values()) {
    await db
      .insertInto('delivery_lanes')
      .values({ webhook_id, session_id, last_sequence, due_at })
      .onConflict((conflict) => conflict.columns(['webhook_id', 'session_id']).doUpdateSet({ last_sequence }))
      .execute();
  }
}
