import { randomInt } from 'node:crypto';
import type { Insertable, Kysely, Transaction } from 'kysely';
import { DIGITS, ulid } from '../core/ids.ts';
import { ROW_BATCH_SIZE } from './blob-references.ts';
import type { ActionEventType, ActionStatus, Tables, WebhookEventType, WebhookRow } from './schema.ts';
import type { StateChange } from './session-states.ts';

/** What a transaction has changed: the events of actions, or the deliveries that wait to be sent. */
export type Change = 'actions' | 'deliveries';

interface EventOfTurn {
  sessionId: string;
  turnId: string;
  agentName: string | null;
}

/** The end of a turn, or a change of an action or of the state of a session. */
export type OutboxEvent =
  | (EventOfTurn & { type: Exclude<WebhookEventType, ActionEventType> })
  /** With the state of the action after the change. */
  | (EventOfTurn & { type: ActionEventType; action: { id: string; status: ActionStatus; decisions: number } })
  | SessionChanged;

export interface SessionChanged {
  type: 'session.changed';
  sessionId: string;
  change: StateChange;
}

/**
 * Writes events in the transactions that they result from: for the readers of the inbox, and for each webhook that is
 * registered for them. Afterwards the listeners are told.
 */
export class Outbox {
  readonly #db: Kysely<Tables>;
  readonly #listeners = new Set<(change: Change) => void>();

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  /** Calls the listener after each commit with a change. */
  onChange(listener: (change: Change) => void): void {
    this.#listeners.add(listener);
  }

  /**
   * Runs a transaction. The events that it emits are written at its end, since their counter stays locked until the
   * commit: numbers are committed in their order, so a reader that has seen one has missed none below it.
   */
  async transaction<T>(
    work: (db: Transaction<Tables>, emit: (...events: OutboxEvent[]) => void) => Promise<T>,
  ): Promise<T> {
    const { result, changes } = await this.#db.transaction().execute(async (db) => {
      const events: OutboxEvent[] = [];
      const result = await work(db, (...emitted) => void events.push(...emitted));
      return { result, changes: await write(db, events) };
    });
    this.#announce(changes);
    return result;
  }

  /** Adds a test delivery to a webhook, and returns its id. */
  async ping(webhookId: string): Promise<string> {
    const id = await this.#db.transaction().execute(async (db) => {
      const sequence = await reserve(db, 1);
      const row = { ...newDelivery(webhookId, sequence), type: 'ping' as const, session_id: '' };
      await addDeliveries(db, [row]);
      return row.id;
    });
    this.#announce(['deliveries']);
    return id;
  }

  #announce(changes: Change[]): void {
    for (const change of changes) for (const listener of this.#listeners) listener(change);
  }
}

async function write(db: Transaction<Tables>, events: OutboxEvent[]): Promise<Change[]> {
  if (events.length === 0) return [];
  const webhooks = await db
    .selectFrom('webhooks')
    .select(['id', 'face', 'events', 'agent_name'])
    .where('disabled', '=', 0)
    .execute();
  const addressed = events
    .map((event) => ({ event, to: webhooks.filter((webhook) => isToldOf(webhook, event)) }))
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

/** Webhooks of the Agents API v2 are told of the states of sessions, the others of the events that they name. */
function isToldOf(
  { face, events, agent_name: agentName }: Pick<WebhookRow, 'face' | 'events' | 'agent_name'>,
  event: OutboxEvent,
): boolean {
  if (event.type === 'session.changed') return face === 'agents-v2';
  return events.includes(JSON.stringify(event.type)) && (agentName === null || agentName === event.agentName);
}

/** Takes the next `count` numbers and returns the first. */
async function reserve(db: Transaction<Tables>, count: number): Promise<number> {
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

function newDelivery(webhookId: string, sequence: number) {
  const now = Date.now();
  const id = ulid('dlv', now, () => randomInt(DIGITS));
  return { id, webhook_id: webhookId, sequence, created_at: new Date(now).toISOString() };
}

type NewDelivery = Insertable<Tables['deliveries']>;

/**
 * Adds deliveries to the ends of their lanes. First the deliveries, which lock their webhooks by their foreign keys: a
 * deletion of a webhook takes the same locks in the same order.
 */
async function addDeliveries(db: Transaction<Tables>, deliveries: NewDelivery[]): Promise<void> {
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
