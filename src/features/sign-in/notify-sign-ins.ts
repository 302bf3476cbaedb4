import type { SweepSources } from '../feature.ts';
import { isNotFound } from '../../temporal/errors.ts';
import { signalTurn } from '../../engine/session-commands.ts';

/** Sign-ins per call; the next call handles the rest. */
const LIMIT = 200;

/**
 * Settles the actions of ended sign-ins in the inbox, and notifies the turns that requested them, which resume if they
 * wait. The catalog records which turns were notified, so a crash loses nothing: housekeeping calls this, too. A
 * repeated notification has no effect.
 */
export async function notifySignIns({
  catalog,
  client,
  log,
}: Pick<SweepSources, 'catalog' | 'client' | 'log'>): Promise<void> {
  for (const { id, turnId, by } of await catalog.mcpSignIns.unnotified(LIMIT)) {
    try {
      // Settled before the turn resumes, whose end would supersede the action.
      await catalog.mcpSignIns.settle({ id, turnId });
      await signalTurn(client, turnId, { type: 'sign_in', id: `sign-in ${id}`, signInId: id, ...(by && { by }) });
    } catch (error) {
      // The turn has ended: the next turn of the session retries the server.
      if (!isNotFound(error)) {
        log.warn({ turnId, err: error }, 'failed to notify the turn of an ended sign-in; retrying');
        continue;
      }
    }
    await catalog.mcpSignIns.setNotified(id);
  }
}
