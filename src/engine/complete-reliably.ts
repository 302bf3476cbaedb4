import { setTimeout as sleep } from 'node:timers/promises';
import { ActivityNotFoundError, type Client } from '@temporalio/client';
import { Context } from '@temporalio/activity';
import type { ActivitySerializationContext } from '@temporalio/common';
import { isTemporalUnavailable } from '../temporal/errors.ts';
import { retryWhileUnavailable } from './retry.ts';

/** If Temporal responds after this time, the SDK's own attempts succeed. */
const CHECK_AFTER_MS = 1_000;
const RESPONSE_TIMEOUT_MS = 5_000;

/**
 * Completes the current activity by task token if Temporal is unavailable for longer than the SDK retries (10 s). For
 * results that cannot be recomputed. The remainder of the activity's heartbeat time-out bounds how long Temporal may be
 * unavailable.
 */
export function completeReliably({ client }: { client: Client }, result: unknown): void {
  const { taskToken, namespace, activityId, workflowExecution, heartbeatTimeoutMs = 0 } = Context.current().info;
  const lifetime = AbortSignal.timeout(heartbeatTimeoutMs);
  // The context with which the worker encodes: an encrypted result is bound to it.
  const serializationContext: ActivitySerializationContext = {
    type: 'activity',
    namespace,
    activityId,
    isLocal: false,
    ...(workflowExecution && { workflowId: workflowExecution.workflowId }),
  };
  const withDeadline = <T>(work: () => Promise<T>): Promise<T> =>
    client.connection.withDeadline(Date.now() + RESPONSE_TIMEOUT_MS, work);
  const ensureCompleted = async (): Promise<void> => {
    await sleep(CHECK_AFTER_MS, undefined, { ref: false });
    try {
      await withDeadline(() => client.workflowService.getSystemInfo({}));
    } catch (error) {
      if (!isTemporalUnavailable(error)) throw error;
      const complete = (): Promise<void> =>
        withDeadline(() => client.activity.complete(taskToken, result, { serializationContext }));
      // The SDK does not distinguish an outage from other errors.
      await retryWhileUnavailable(complete, lifetime, (cause) => !(cause instanceof ActivityNotFoundError));
    }
  };
  // An activity that is not found was completed by the SDK, or has timed out.
  ensureCompleted().catch(() => undefined);
}
