import { randomUUID } from 'node:crypto';
import proto from '@temporalio/proto';
import type { Client } from '@temporalio/client';
import { optionalTsToMs } from '@temporalio/common/lib/time.js';
import type { Logger } from 'pino';

/**
 * A poll waits up to a minute for a task. Temporal lists pollers for five minutes, so an entry older than this belongs
 * to a worker that has stopped.
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
  throw new Error(`no worker polls the task queue ${taskQueue}: start one with everturn worker`);
}

/**
 * The embedded server takes 7 ms, one on PostgreSQL on a small machine 20 ms, a small server with default settings 100
 * ms.
 */
const SLOW_MS = 60;

interface ProbeOptions {
  client: Client;
  taskQueue: string;
  log: Logger;
}

/** Logs a warning if Temporal dispatches the steps of a workflow slowly, since each turn has many. Never rejects. */
export async function warnIfSlow({ client, taskQueue, log }: ProbeOptions): Promise<void> {
  try {
    const stepMs = await client.workflow.execute<() => Promise<number>>('dispatchProbe', {
      workflowId: `dispatch-probe/${randomUUID()}`,
      taskQueue,
      workflowExecutionTimeout: '1 minute',
    });
    if (stepMs < SLOW_MS) return;
    log.warn(
      { stepMs },
      `Temporal takes ${stepMs} ms from one activity to the next, so turns are slow. If you run the server yourself, set ` +
        'history.transferProcessorMaxPollRPS to 2000 (the default is 20 per shard) and ' +
        'system.enableActivityEagerExecution to true in its dynamic configuration',
    );
  } catch (error) {
    log.warn({ err: error }, "Temporal's dispatch time could not be measured");
  }
}
