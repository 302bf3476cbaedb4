import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { DeliveryResource, WebhookMessage } from '../../../src/api/sessions/wire/webhooks.ts';
import type { ApiClient } from '../../support/api-client.ts';
import type { WebhookReceiver } from '../../support/webhook-receiver.ts';
import type { Stored } from './check.ts';

/**
 * 11: a webhook has got the end of each turn and each action once, or repeatedly with the same id, in the order of the
 * session, and no message after a later one. A turn that was cancelled in the queue ends at any time.
 */
export async function checkWebhooks(
  { id, secret, receiver }: { id: string; secret: string; receiver: WebhookReceiver },
  {
    api,
    sessions,
    unbegun,
    timeoutMs,
  }: { api: ApiClient; sessions: Map<string, Stored[]>; unbegun: string[]; timeoutMs: number },
): Promise<void> {
  const received = () => receiver.messages(secret).flatMap(placed);
  const ended = [...[...sessions.values()].flat().map(({ turn }) => turn.id), ...unbegun];
  const missing = () => {
    const told = new Set(received().flatMap(({ type, about }) => (type === 'turn.done' ? [about] : [])));
    return ended.filter((turnId) => !told.has(turnId));
  };
  await allDelivered(api, { id, missing, timeoutMs });
  const messages = Map.groupBy(received(), ({ sessionId }) => sessionId);
  for (const [sessionId, turns] of sessions) {
    const its = messages.get(sessionId) ?? [];
    const inOrder = its.filter((message, i) => message.id !== its[i - 1]?.id);
    expect(inOrder, `messages about session ${sessionId}`).toEqual([
      ...new Map(its.map((one) => [one.id, one])).values(),
    ]);
    const about = (type: WebhookMessage['type']) =>
      inOrder.flatMap((message) => (message.type === type ? [message.about] : []));
    const begun = about('turn.done').filter((turnId) => !unbegun.includes(turnId));
    expect(begun, `ended turns of session ${sessionId}`).toEqual(turns.map(({ turn }) => turn.id));
    const required = turns.flatMap(({ events }) =>
      events.flatMap((event) =>
        event.type === 'tool.approval_required' || event.type === 'tool.response_required'
          ? event.tool_calls.map((call) => call.id)
          : // Those who may decide from then on are told.
            event.type === 'tool.decided' && event.decision === 'escalated'
            ? [event.tool_call_id]
            : [],
      ),
    );
    expect(about('action.created').toSorted(), `actions of session ${sessionId}`).toEqual(required.toSorted());
  }
}

interface Placed {
  id: string;
  type: WebhookMessage['type'];
  sessionId: string;
  /** The id of its turn, or of its call. */
  about: string;
}

function placed({ id, type, data }: WebhookMessage): Placed[] {
  if (!('session_id' in data)) return [];
  const about = 'turn' in data ? data.turn.id : (data.action.tool_call_id ?? data.action.kind);
  return [{ id, type, sessionId: data.session_id, about }];
}

/**
 * A delivery exists only once its turn is archived, which is retried after a fault; and the lane of a worker that was
 * killed is taken over after half a minute.
 */
async function allDelivered(
  api: ApiClient,
  { id, missing, timeoutMs }: { id: string; missing: () => string[]; timeoutMs: number },
): Promise<void> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    const deliveries = await api.list<DeliveryResource>(`/v1/webhooks/${id}/deliveries`);
    const left = deliveries.filter(({ status }) => status !== 'delivered');
    const unnotified = missing();
    if (left.length === 0 && unnotified.length === 0) return;
    const what = `not delivered: ${JSON.stringify(left)}; no message about the end of: ${unnotified.join()}`;
    expect(performance.now(), what).toBeLessThan(end);
    await sleep(500);
  }
}
