import type { Client } from '@temporalio/client';
import { optionalTsToMs } from '@temporalio/common/lib/time.js';
import proto from '@temporalio/proto';

/**
 * A poll waits for a task for a minute. Temporal remembers who polled for five, so one that came earlier than this is
 * from a worker that is gone.
 */
const POLLED_WITHIN_MS = 75_000;

const TIMEOUT_MS = 2_000;

/** @throws Error if no worker polls the task queue */
export async function checkPollers(client: Client, taskQueue: string): Promise<void> {
  const { connection, options } = client;
  const { pollers } = await connection.withDeadline(Date.now() + TIMEOUT_MS, () =>
    connection.workflowService.describeTaskQueue({
      namespace: options.namespace,
      taskQueue: { name: taskQueue },
      taskQueueType: proto.temporal.api.enums.v1.TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    }),
  );
  const since = Date.now() - POLLED_WITHIN_MS;
  if (pollers.some(({ lastAccessTime }) => (optionalTsToMs(lastAccessTime) ?? 0) >= since)) return;
  throw new Error(`none polls the task queue ${taskQueue}: start one with everturn worker`);
}
