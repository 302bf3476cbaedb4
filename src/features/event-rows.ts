import type { Transaction } from 'kysely';
import type { Change, OutboxEvent } from '../catalog/outbox.ts';
import type { Tables } from '../catalog/schema.ts';
import { addDeliveries, newDelivery, reserve } from './webhooks/delivery-rows.ts';
import type { WebhookRow } from './webhooks/tables.ts';

/** Writes events for the readers of the inbox, and for each webhook that is registered for them. */
export async function writeEvents(db: Transaction<Tables>, events: OutboxEvent[]): Promise<Change[]> {
  if (events.length === 0) return [];
  const webhooks = await db
    .selectFrom('webhooks')
    .select(['id', 'face', 'events', 'agent_name'])
    .where('disabled', '=', 0)
    .execute();
  const addressed = events
    .map((event) => ({ event, to: webhooks.filter((webhook) => isSubscribed(webhook, event)) }))
    .filter(({ event, to }) => 'action' in event || to.length > 0);
  if (addressed.length === 0) return [];
  const first = await reserve(db, addressed.length);
  const numbered = addressed.map((one, index) => ({ ...one, sequence: first + index }));
  const changes = numbered.flatMap(({ event, sequence }) => {
    if (!('action' in event)) return [];
    const { id, status, decisions } = event.action;
    return { sequence, action_id: id, type: event.type, status, decisions };
  });
  if (changes.length > 0) await db.insertInto('action_events').values(changes).execute();
  const deliveries = numbered.flatMap(({ event, to, sequence }) =>
    to.map(({ id }) => ({
      ...newDelivery(id, sequence),
      type: event.type,
      session_id: event.sessionId,
      ...('change' in event ? { change: JSON.stringify(event.change) } : { turn_id: event.turnId }),
      ...('action' in event && {
        action_id: event.action.id,
        action_status: event.action.status,
        action_decisions: event.action.decisions,
      }),
    })),
  );
  await addDeliveries(db, deliveries);
  return [
    ...(changes.length > 0 ? ['actions' as const] : []),
    ...(deliveries.length > 0 ? ['deliveries' as const] : []),
  ];
}

/** Webhooks of the Agents API v2 get the changed states of sessions; the others get the events that they list. */
function isSubscribed(
  { face, events, agent_name: agentName }: Pick<WebhookRow, 'face' | 'events' | 'agent_name'>,
  event: OutboxEvent,
): boolean {
  if (event.type === 'session.changed') return face === 'agents-v2';
  return events.includes(JSON.stringify(event.type)) && (agentName === null || agentName === event.agentName);
}
