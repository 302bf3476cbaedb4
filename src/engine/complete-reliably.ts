import { setTimeout as sleep } from 'node:timers/promises';
import { ActivityNotFoundError, type Client } from '@temporalio/client';
import { Context } from '@temporalio/activity';
import { isTemporalUnavailable } from '../temporal/errors.ts';
import { retryWhileUnavailable } from './retry.ts';

/** If Temporal answers then, the SDK's own tries have got through, or will. */
const LOOK_AFTER_MS = 1_000;
const ANSWER_MS = 5_000;

/**
 * Sees to it that Temporal gets the result which the current activity is about to return, however long it is away: the
 * SDK gives up after 10 s. For results that can't be had again. What is left of the activity's heartbeat time-out is the
 * time that Temporal has to come back.
 */
export function completeReliably({ client }: { client: Client }, result: unknown): void {
  const { taskToken } = Context.current().info;
  const soon = <T>(work: () => Promise<T>): Promise<T> => client.connection.withDeadline(Date.now() + ANSWER_MS, work);
  const deliver = async (): Promise<void> => {
    await sleep(LOOK_AFTER_MS, undefined, { ref: false });
    try {
      await soon(() => client.workflowService.getSystemInfo({}));
    } catch (error) {
      if (!isTemporalUnavailable(error)) throw error;
      const complete = (): Promise<void> => soon(() => client.activity.complete(taskToken, result));
      await retryWhileUnavailable(
        complete,
        new AbortController().signal,
        (cause) => !(cause instanceof ActivityNotFoundError),
      );
    }
  };
  // Not found: it was delivered after all, or has timed out.
  deliver().catch(() => undefined);
}
