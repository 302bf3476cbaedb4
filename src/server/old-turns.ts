import { OLDEST_RULES } from '../core/history.ts';
import { OLD_RULES, turnWorkflowId } from '../core/temporal-names.ts';
import { unlessUnreadable } from '../engine/turn-log-reader.ts';
import { runningTurns } from '../housekeeping/index-turns.ts';
import { StartupError } from '../lib/errors.ts';
import { terminateWorkflow } from '../temporal/end-workflow.ts';
import type { Services } from './services.ts';

/** Set when no older turn was open: a worker that starts later need not read them all. */
const MARK = `turns of rules ${OLDEST_RULES}`;

/** An error message names so many turns. */
const MAX_NAMED = 10;

/**
 * Makes sure that the worker, which is about to start, gets no turn of rules that it does not know: it would replay the
 * turn by other ones. With `endOldTurns` such turns end with an error; they are not run again, and their sessions continue
 * with their next turns.
 * @throws StartupError that names such turns
 */
export async function refuseOldTurns(
  { client, catalog, logs, config, log }: Pick<Services, 'client' | 'catalog' | 'logs' | 'config' | 'log'>,
  { endOldTurns = false }: { endOldTurns?: boolean | undefined },
): Promise<void> {
  if ((await catalog.marks.get(MARK)) !== undefined) return;
  const old: string[] = [];
  for (const turnId of await runningTurns({ client, taskQueue: config.temporal.taskQueue })) {
    const start = await unlessUnreadable(logs.start(turnId), { turnId, log });
    if (start && (start.rules ?? 0) < OLDEST_RULES) old.push(turnId);
  }
  if (old.length > 0 && !endOldTurns) throw new StartupError(refusal(old));
  for (const turnId of old) {
    const reason = 'an earlier version began it';
    await terminateWorkflow(client, { workflowId: turnWorkflowId(turnId), reason, details: OLD_RULES });
    log.warn({ turnId }, 'a turn that an earlier version began was ended with an error');
  }
  await catalog.marks.raise(MARK, new Date().toISOString());
}

function refusal(turnIds: string[]): string {
  const more = turnIds.length - MAX_NAMED;
  return (
    `turns that an earlier version began are open, and this version does not continue them: ` +
    `${turnIds.slice(0, MAX_NAMED).join(', ')}${more > 0 ? ` and ${more} more` : ''}. ` +
    'Start the earlier version until they have ended, or this one with --end-old-turns, which ends them with an error'
  );
}
