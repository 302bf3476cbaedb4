import type { Logger } from 'pino';
import type { Catalog } from '../../catalog/catalog.ts';
import type { DeliveryRow } from '../../catalog/schema.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import type { SessionRequestRow } from '../../catalog/session-requests.ts';
import type { LoggedChange, LogPlace, StateChange } from '../../catalog/state-changes.ts';
import { unlessNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';
import type { WebhookFormat } from '../../webhooks/webhook-format.ts';
import { idleTimeoutOf } from './read-session.ts';
import { toUuid } from './session-ids.ts';
import { stateOf, type LastTurn } from './session-state.ts';
import { NO_TOTALS, TurnEvents, NO_CALLS } from './turn-events.ts';
import { signatureHeaders } from './webhook-signature.ts';
import { STATUS_UPDATED, type WebhookMessage } from './wire/webhooks.ts';

/**
 * A webhook is disabled after so many failed attempts in a row, if the first of them was a day ago: then its oldest
 * deliveries are given up. A count alone would disable a busy webhook after a short outage of its receiver.
 */
const MAX_FAILURES = 20;
const MAX_FAILING_MS = 24 * 3_600_000;

/** A session's last turn at some place in its log; undefined before the first turn. */
interface Moment {
  last: LastTurn | undefined;
}

/** After a turn whose log was lost. */
const LOST: Moment = {
  last: {
    startedAt: undefined,
    end: { status: 'error', message: 'The log of the turn was lost.' },
    endedAt: undefined,
    waiting: new Map(),
    pauses: new Set(),
  },
};

/** What the webhooks of this API are sent: the statuses of sessions, as they follow from the logs. */
export function statusFormat(services: { catalog: Catalog; logs: TurnLogReader; log: Logger }): WebhookFormat {
  const { catalog, logs, log } = services;
  return {
    messageOf,
    headersOf: signatureHeaders,
    attempted: async ({ id }, attempt) => {
      const since = new Date(Date.parse(attempt.at) - MAX_FAILING_MS).toISOString();
      const isDisabled = await catalog.webhooks.attempted(id, attempt, { failures: MAX_FAILURES, since });
      if (isDisabled) log.warn({ webhookId: id, reason: attempt.error }, 'a webhook was disabled: it fails for a day');
    },
  };

  async function messageOf(delivery: DeliveryRow): Promise<WebhookMessage | 'nothing' | undefined> {
    const { session_id: sessionId, change, created_at } = delivery;
    const session = await catalog.sessions.get(sessionId);
    if (change === null || !session) return undefined;
    // This API does not have the sessions of runs.
    if (isOfRun(session)) return 'nothing';
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the outbox
    const told = JSON.parse(change) as StateChange;
    const statuses = 'unbegun' in told ? told.unbegun : await statusesOf(sessionId, told);
    if (!statuses) return undefined;
    const { from, to } = statuses;
    if (from === to) return 'nothing';
    const data = { session_id: toUuid(sessionId), status: to, previous_status: from };
    return { type: STATUS_UPDATED, id: messageId(delivery.id), created_at, data };
  }

  /** The statuses at the two moments of a change; undefined if the turn in which it happened no longer exists. */
  async function statusesOf(sessionId: string, { from, to, cancelledAt }: LoggedChange) {
    const [was, is] = await momentsOf(sessionId, from, to);
    if (!was || !is) return undefined;
    const request = await catalog.sessionRequests.get(sessionId);
    return {
      from: statusAt(was, { request, cancelledAt: cancelledAt.from, isIdleOver: from?.isIdleOver }),
      to: statusAt(is, { request, cancelledAt: cancelledAt.to, isIdleOver: to?.isIdleOver }),
    };
  }

  /** The two moments of a change; undefined if the turn in which it happened no longer exists. */
  async function momentsOf(sessionId: string, from: LogPlace | null, to: LogPlace | null) {
    if (from && from.turnId === to?.turnId) return read(sessionId, from.turnId, [from.ordinal, to.ordinal]);
    const [[was = LOST], [is]] = await Promise.all([momentsAt(sessionId, from), momentsAt(sessionId, to)]);
    return [was, is];
  }

  async function momentsAt(sessionId: string, place: LogPlace | null): Promise<Moment[]> {
    return place ? read(sessionId, place.turnId, [place.ordinal]) : [{ last: undefined }];
  }

  async function read(sessionId: string, turnId: string, ordinals: number[]): Promise<Moment[]> {
    return (await unlessNotFound(readTurn(sessionId, turnId, ordinals))) ?? [];
  }

  /** A turn after the entries with these ordinals, which rise. */
  async function readTurn(sessionId: string, turnId: string, ordinals: number[]): Promise<Moment[]> {
    // The status does not depend on the turns before it.
    const events = new TurnEvents({
      totals: NO_TOTALS,
      isFirst: false,
      isInteractive: true,
      unanswered: NO_CALLS,
      sessionId,
    });
    const moments: Moment[] = [];
    const take = (until: number) => {
      while ((ordinals[moments.length] ?? Infinity) < until) moments.push({ last: lastOf(events) });
    };
    for await (const entries of logs.read(turnId)) {
      for (const { ordinal, record } of entries) {
        take(ordinal);
        if (moments.length === ordinals.length) return moments;
        events.feed(record);
      }
    }
    take(Infinity);
    return moments;
  }
}

/** The id of the message of a delivery. */
export function messageId(deliveryId: string): string {
  return deliveryId.replace(/^dlv_/, 'evt_');
}

function lastOf({ startedAt, end, done, waiting, pauses }: TurnEvents): LastTurn {
  return { startedAt, end, endedAt: done?.at, waiting: new Map(waiting), pauses: new Set(pauses) };
}

function statusAt(
  { last }: Moment,
  options: { request: SessionRequestRow | undefined; cancelledAt: string | null; isIdleOver: true | undefined },
) {
  const { request, cancelledAt, isIdleOver } = options;
  return stateOf({
    last,
    idleTimeout: idleTimeoutOf(request),
    isStarting: typeof request?.first_message === 'string',
    isQueued: false,
    // Before the first turn, `unbegun` says it.
    rejected: undefined,
    cancelledAt: cancelledAt ?? undefined,
    // That the session has ended for want of a message is told by itself.
    now: isIdleOver ? Infinity : -Infinity,
  }).status;
}
