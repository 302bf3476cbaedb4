import { Context, log } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { cancelTurn } from '../../workflows/messages.ts';
import { isNotFound } from '../temporal/errors.ts';
import { retryWhileUnavailable } from './retry.ts';

/** Timers with longer delays fire immediately. No attempt lasts as long as this. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/**
 * Runs an attempt of a turn's activity, and cancels the turn if its deadline passes meanwhile. A turn always waits for
 * an activity, so it needs no timer in its workflow, which would cost events and workflow tasks in every turn.
 *
 * @param deadline milliseconds since 1970
 */
export async function cancelAtDeadline<T>(client: Client, deadline: number, work: () => Promise<T>): Promise<T> {
  const { workflowId, runId } = Context.current().info.workflowExecution ?? { workflowId: '' };
  // Created at the deadline: nearly all attempts end before it, and aborting costs a tenth of a millisecond.
  let cancelling: AbortController | undefined;
  const cancel = async (): Promise<void> => {
    cancelling = new AbortController();
    const { signal } = cancelling;
    const handle = client.workflow.getHandle(workflowId, runId);
    try {
      await retryWhileUnavailable(() => handle.signal(cancelTurn, 'server-execution-timeout'), signal);
    } catch (error) {
      const isEnded = isNotFound(error) || signal.aborted;
      if (!isEnded) log.error('a turn could not be cancelled at its deadline', { error });
    }
  };
  const timer = setTimeout(() => void cancel(), Math.min(deadline - Date.now(), MAX_DELAY_MS));
  try {
    return await work();
  } finally {
    clearTimeout(timer);
    cancelling?.abort();
  }
}
