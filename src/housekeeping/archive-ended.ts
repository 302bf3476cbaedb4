import { TurnNotFound } from '../engine/turn-log-reader.ts';
import { withLogContext } from '../telemetry/log-context.ts';
import { TURN_WORKFLOW, turnIdOf } from '../core/temporal-names.ts';
import type { Housekeeping, Sweep } from './housekeeping.ts';

export interface Swept {
  /** The turns that could not be archived. */
  failed: string[];
  /** All other turns that ended before this time are in the archive. */
  until: string;
}

/**
 * Workers archive their turns within seconds; a sweep skips turns that ended this recently. The first sweep of a process
 * does not: a catalog that was restored may have missed a turn that has just ended, and the session of such a turn must
 * not expire.
 */
const LEFT_TO_WORKERS_MS = 60_000;

/** Turns that ended this long before the last sweep are checked again: visibility lags, and clocks differ. */
const OVERLAP_MS = 10 * 60_000;

/** The catalog's mark: all turns that ended before it are in the archive. */
const MARK = 'archived turns';

/**
 * Archives the turns that have ended since the last sweep, and retries those that failed then. The first sweep of a
 * process starts at the mark, which a sweep without a failure advances; without a mark it covers everything that Temporal
 * still has. Returns the turns that could not be archived, and the time from which the next sweep starts.
 */
export async function archiveEnded(
  housekeeping: Pick<Housekeeping, 'client' | 'taskQueue' | 'catalog' | 'archiveTurn' | 'log'>,
  { last, now, stop }: Sweep & { last: Swept | undefined },
): Promise<Swept> {
  const { client, taskQueue, catalog, archiveTurn, log } = housekeeping;
  const since = last?.until ?? (await catalog.marks.get(MARK));
  const before = new Date(now.getTime() - LEFT_TO_WORKERS_MS).toISOString();
  const conditions = [
    `WorkflowType = '${TURN_WORKFLOW}'`,
    `TaskQueue = '${taskQueue}'`,
    // To Temporal on SQL the close time of a running turn is the year 9999, not null.
    `ExecutionStatus != 'Running'`,
    `ExecutionStatus != 'ContinuedAsNew'`,
    ...(since === undefined ? [] : [`CloseTime > '${since}'`]),
    ...(last ? [`CloseTime < '${before}'`] : []),
  ];
  const query = conditions.join(' AND ');
  const failed = new Set<string>();
  const archive = async (turnId: string): Promise<void> => {
    if (stop.aborted || failed.has(turnId)) return;
    const row = await catalog.turns.get(turnId);
    if (row?.archived) return;
    await withLogContext({ turnId, sessionId: row?.session_id }, async () => {
      try {
        if (await archiveTurn(turnId, stop)) log.info('a turn that its worker had not archived was archived');
      } catch (error) {
        if (error instanceof TurnNotFound) {
          log.warn('a turn was deleted before it was archived');
          return;
        }
        // A turn that cannot be read must not block the others.
        failed.add(turnId);
        log.warn({ err: error }, 'a turn could not be archived; retrying');
      }
    });
  };
  for (const turnId of last?.failed ?? []) await archive(turnId);
  for await (const { workflowId } of client.workflow.list({ query })) {
    if (stop.aborted) break;
    const turnId = turnIdOf(workflowId);
    if (turnId !== undefined) await archive(turnId);
  }
  const until = new Date(now.getTime() - OVERLAP_MS).toISOString();
  if (failed.size === 0 && !stop.aborted) await catalog.marks.raise(MARK, until);
  return { failed: [...failed], until };
}
