import type { Kysely, Transaction } from 'kysely';
import type { CatalogFeatures } from './log-reader.ts';
import type { Tables } from './schema.ts';
import type { StateChange } from './session-states.ts';

export const ACTION_STATUSES = ['pending', 'decided', 'expired', 'superseded'] as const;

/**
 * `superseded`: it can no longer be answered, because the conversation continued elsewhere, its turn ended without it,
 * or its session was closed or deleted.
 */
export type ActionStatus = (typeof ACTION_STATUSES)[number];

export const ACTION_EVENT_TYPES = ['action.created', 'action.decided', 'action.expired'] as const;

export type ActionEventType = (typeof ACTION_EVENT_TYPES)[number];

/** The events for which webhooks can be registered. */
export const WEBHOOK_EVENT_TYPES = ['turn.done', ...ACTION_EVENT_TYPES] as const;

export type WebhookEventType = (typeof WEBHOOK_EVENT_TYPES)[number];

/** `session.changed`: the state of a session may have changed. */
export type OutboxEventType = WebhookEventType | 'session.changed';

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

/** Writes events in the transactions that they result from, and notifies the listeners afterwards. */
export class Outbox {
  readonly #db: Kysely<Tables>;
  readonly #write: CatalogFeatures['writeEvents'];
  readonly #listeners = new Set<(change: Change) => void>();

  constructor(db: Kysely<Tables>, write: CatalogFeatures['writeEvents']) {
    this.#db = db;
    this.#write = write;
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
      return { result, changes: await this.#write(db, events) };
    });
    this.announce(changes);
    return result;
  }

  /** Notifies the listeners of a commit with these changes. */
  announce(changes: Change[]): void {
    for (const change of changes) for (const listener of this.#listeners) listener(change);
  }
}
