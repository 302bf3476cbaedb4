import type { Catalog } from '../features/catalog.ts';
import { OLDEST_RULES, TURN_RULES } from '../core/history.ts';
import { OLD_RULES, turnWorkflowId } from '../core/temporal-names.ts';
import { unlessNotFound } from '../engine/turn-log-reader.ts';
import { isUnavailable } from '../engine/unavailable.ts';
import { runningTurns } from '../housekeeping/index-turns.ts';
import { StartupError } from '../lib/errors.ts';
import { terminateWorkflow } from '../temporal/end-workflow.ts';
import type { Services } from './services.ts';

/** Raised by the start of a worker that begins turns of these rules. */
const begun = (rules: number): string => `begun turns of rules ${rules}`;

/** Raised when no turn of older rules was open. */
const CHECKED = `no turns before rules ${OLDEST_RULES}`;

/** How many turns an error message names. */
const MAX_NAMED = 10;

type OldTurnsServices = Pick<Services, 'client' | 'catalog' | 'logs' | 'config' | 'log'>;

/**
 * Makes sure that the worker, which is about to start, gets no turn of rules that it does not have: it would replay the
 * turn by other rules. With `endOldTurns` such turns end with an error; they are not executed again, and their sessions
 * continue with their next turns.
 *
 * The open turns are read once, and again after a version of older rules has run: there may be thousands, and only that
 * version can begin others. Turns that cannot be read do not prevent the start, and the next start reads them again. A
 * worker of a version of its own gets only turns that its version has begun.
 * @throws StartupError that names such turns; outages
 */
export async function refuseOldTurns(
  services: OldTurnsServices,
  { endOldTurns = false }: { endOldTurns?: boolean | undefined },
): Promise<void> {
  const { client, catalog, config, log } = services;
  const at = new Date().toISOString();
  await catalog.marks.raise(begun(TURN_RULES), at);
  if (config.temporal.buildId !== undefined && !endOldTurns) return;
  if (await isChecked(catalog)) return;
  const { old, unread } = await oldTurns(services);
  if (old.length > 0 && !endOldTurns) throw new StartupError(refusal(old));
  for (const turnId of old) {
    const reason = 'an earlier version began it';
    await terminateWorkflow(client, { workflowId: turnWorkflowId(turnId), reason, details: OLD_RULES });
    log.warn({ turnId }, 'a turn that an earlier version began was ended with an error');
  }
  if (unread === 0) await catalog.marks.raise(CHECKED, at);
}

async function isChecked({ marks }: Catalog): Promise<boolean> {
  const checked = await marks.get(CHECKED);
  if (checked === undefined) return false;
  for (let rules = 0; rules < OLDEST_RULES; rules++) {
    if (((await marks.get(begun(rules))) ?? '') >= checked) return false;
  }
  return true;
}

/** The open turns of older rules, and how many could not be read. */
async function oldTurns({ client, logs, config, log }: OldTurnsServices): Promise<{ old: string[]; unread: number }> {
  const old: string[] = [];
  let unread = 0;
  for (const turnId of await runningTurns({ client, taskQueue: config.temporal.taskQueue })) {
    try {
      const start = await unlessNotFound(logs.start(turnId));
      if (start && (start.rules ?? 0) < OLDEST_RULES) old.push(turnId);
    } catch (error) {
      if (isUnavailable(error)) throw error;
      unread += 1;
      log.error({ turnId, err: error }, 'an open turn cannot be read: an earlier version may have begun it');
    }
  }
  return { old, unread };
}

function refusal(turnIds: string[]): string {
  const more = turnIds.length - MAX_NAMED;
  return (
    `turns that an earlier version began are open, and this version does not continue them: ` +
    `${turnIds.slice(0, MAX_NAMED).join(', ')}${more > 0 ? ` and ${more} more` : ''}. ` +
    'Start the earlier version until they have ended, or this one with --end-old-turns, which ends them with an error'
  );
}
