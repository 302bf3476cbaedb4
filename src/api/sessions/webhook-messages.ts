import type { Catalog } from '../../catalog/catalog.ts';
import type { DeliveryRow } from '../../catalog/schema.ts';
import { unlessNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';
import { actionToResource } from './wire/actions.ts';
import { toTurnResource } from './wire/resources-to-wire.ts';
import type { WebhookMessage } from './wire/webhooks.ts';

/** Returns the function that makes the body of a delivery; undefined if what it is about was deleted with its session. */
export function webhookMessages({ catalog, logs }: { catalog: Catalog; logs: TurnLogReader }) {
  return async (delivery: DeliveryRow): Promise<WebhookMessage | undefined> => {
    const { id, type, created_at } = delivery;
    if (type === 'ping') return { id, type, created_at, data: {} };
    if (type === 'session.changed') return undefined; // for webhooks of another API
    if (type === 'turn.done') {
      const data = await turnData(delivery);
      return data && { id, type, created_at, data };
    }
    const data = await actionData(delivery);
    return data && { id, type, created_at, data };
  };

  async function turnData({ session_id, turn_id }: DeliveryRow) {
    const session = await catalog.sessions.get(session_id);
    if (!session || turn_id === null) return undefined;
    const turn = await unlessNotFound(logs.firstAndLast(turn_id));
    return turn && { session_id, turn_id, agent_name: session.agent_name, turn: toTurnResource(turn) };
  }

  async function actionData({
    session_id,
    action_id,
    action_status: status,
    action_decisions: decisions,
  }: DeliveryRow) {
    if (action_id === null || status === null || decisions === null) return undefined;
    const action = await catalog.actions.get(action_id, { status, decisions });
    if (!action) return undefined;
    const { turn_id, agent_name } = action;
    return { session_id, turn_id, agent_name, action: actionToResource(action) };
  }
}
