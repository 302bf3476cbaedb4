import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { McpSignIns } from './mcp-sign-ins.ts';
import { isNotFound } from '../../temporal/errors.ts';
import { signalTurn } from '../../engine/session-commands.ts';

/** The rest is left to the next call. */
const LIMIT = 200;

/**
 * Tells the inbox of the sign-ins that have ended, and the turns that requested them, which continue if they wait. The
 * catalog knows which ones were not told, so a crash after a sign-in loses nothing: housekeeping calls this, too. To tell
 * a turn twice changes nothing.
 */
export async function tellSignIns({
  catalog,
  client,
  log,
}: {
  catalog: { mcpSignIns: McpSignIns };
  client: Client;
  log: Logger;
}): Promise<void> {
  for (const { id, turnId, by } of await catalog.mcpSignIns.untold(LIMIT)) {
    try {
      // Before the turn resumes: its end would supersede the action.
      await catalog.mcpSignIns.settle({ id, turnId });
      await signalTurn(client, turnId, { type: 'sign_in', id: `sign-in ${id}`, signInId: id, ...(by && { by }) });
    } catch (error) {
      // The turn has ended: the next one tries what has waited.
      if (!isNotFound(error)) {
        log.warn({ turnId, err: error }, 'a turn could not be told of a sign-in; housekeeping retries it');
        continue;
      }
    }
    await catalog.mcpSignIns.told(id);
  }
}
