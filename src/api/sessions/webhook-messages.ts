import type { Reader } from '../../auth/rights.ts';
import type { Catalog } from '../../features/catalog.ts';
import type { DeliveryRow } from '../../features/webhooks/tables.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import { unlessNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';
import { actionToResource } from './wire/actions.ts';
import { toTurnResource } from './wire/resources-to-wire.ts';
import type { WebhookMessage } from './wire/webhooks.ts';

/** A webhook gets the events of all sessions. */
const RECEIVER: Reader = { isOwner: false };

/**
 * Returns the function that makes the body of a delivery; undefined if the subject of the delivery was deleted with its
 * session. There are no deliveries about runs: their sessions are not part of this API.
 */
export function webhookMessages({ catalog, logs }: { catalog: Catalog; logs: TurnLogReader }) {
  return async (delivery: DeliveryRow): Promise<WebhookMessage | 'nothing' | undefined> => {
    const { id, type, created_at } = delivery;
    if (type === 'ping') return { id, type, created_at, data: {} };
    if (type === 'session.changed') return undefined; // for webhooks of another API
    const session = await catalog.sessions.get(delivery.session_id);
    if (session && isOfRun(session)) return 'nothing';
    if (type === 'turn.done') {
      const data = session && (await turnData(delivery, session));
      return data && { id, type, created_at, data };
    }
    const data = await actionData(delivery);
    return data && { id, type, created_at, data };
  };

  async function turnData({ session_id, turn_id }: DeliveryRow, session: SessionRow) {
    if (turn_id === null) return undefined;
    const turn = await unlessNotFound(logs.firstAndLast(turn_id));
    return turn && { session_id, turn_id, agent_name: session.agent_name, turn: toTurnResource(turn, RECEIVER) };
  }

  async function actionData(delivery: DeliveryRow) {
    const { session_id, action_id, action_status: status, action_decisions: decisions } = delivery;
    if (action_id === null || status === null || decisions === null) return undefined;
    const action = await catalog.actions.get(action_id, { status, decisions });
    if (!action) return undefined;
    const { turn_id, agent_name } = action;
    return { session_id, turn_id, agent_name, action: actionToResource(action, RECEIVER) };
  }
}
