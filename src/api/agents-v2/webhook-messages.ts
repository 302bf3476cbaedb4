import type { Logger } from 'pino';
import type { Catalog } from '../../features/catalog.ts';
import type { DeliveryRow } from '../../features/webhooks/tables.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import type { StateChange } from '../../catalog/session-states.ts';
import { SESSION_STATES, type SessionState as StoredState } from '../../core/session-state.ts';
import type { WebhookFormat } from '../../features/webhooks/webhook-format.ts';
import { toUuid } from './session-ids.ts';
import { STATUS_OF } from './session-state.ts';
import { signatureHeaders } from './webhook-signature.ts';
import { STATUS_UPDATED, type WebhookMessage } from './wire/webhooks.ts';

/**
 * A webhook is disabled after so many failed attempts in a row, if the first of them was a day ago: then its oldest
 * deliveries are given up. A count alone would disable a busy webhook after a short outage of its receiver.
 */
const MAX_FAILURES = 20;
const MAX_FAILING_MS = 24 * 3_600_000;

/** The messages for the webhooks of this API: the statuses of sessions. */
export function statusFormat(services: { catalog: Catalog; log: Logger }): WebhookFormat {
  const { catalog, log } = services;
  return {
    messageOf,
    headersOf: signatureHeaders,
    attempted: async ({ id }, attempt) => {
      const since = new Date(Date.parse(attempt.at) - MAX_FAILING_MS).toISOString();
      const isDisabled = await catalog.webhooks.attempted(id, attempt, { failures: MAX_FAILURES, since });
      if (isDisabled) log.warn({ webhookId: id, reason: attempt.error }, 'a webhook was disabled: a day of failures');
    },
  };

  async function messageOf(delivery: DeliveryRow): Promise<WebhookMessage | 'nothing' | undefined> {
    const { session_id: sessionId, change, created_at } = delivery;
    const session = await catalog.sessions.get(sessionId);
    if (change === null || !session) return undefined;
    // The sessions of runs are not part of this API.
    if (isOfRun(session)) return 'nothing';
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the outbox
    const { from, to } = JSON.parse(change) as Partial<StateChange>;
    // Versions before 0.1.0 stored positions in logs instead of states.
    if (!isState(from) || !isState(to)) return undefined;
    const [status, previous] = [STATUS_OF[to], STATUS_OF[from]];
    if (status === previous) return 'nothing';
    const data = { session_id: toUuid(sessionId), status, previous_status: previous };
    return { type: STATUS_UPDATED, id: messageId(delivery.id), created_at, data };
  }
}

function isState(state: unknown): state is StoredState {
  return SESSION_STATES.some((one) => one === state);
}

/** The id of the message of a delivery. */
export function messageId(deliveryId: string): string {
  return deliveryId.replace(/^dlv_/, 'evt_');
}
