import proto from '@temporalio/proto';
import type { Client } from '@temporalio/client';
import { optionalTsToMs } from '@temporalio/common/lib/time.js';
import { newId } from '../engine/new-id.ts';
import type { Services } from '../server/services.ts';

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

/** An embedded server takes 7 ms, one on PostgreSQL on a small machine 20; with the default settings of a small server it is 100. */
const SLOW_MS = 60;

/** Says so if Temporal takes much longer than it need between the steps of a workflow: each turn has many. */
export async function warnIfSlow({ client, config, log }: Pick<Services, 'client' | 'config' | 'log'>): Promise<void> {
  try {
    const stepMs = await client.workflow.execute<() => Promise<number>>('dispatchProbe', {
      workflowId: `dispatch-probe/${newId('req')}`,
      taskQueue: config.temporal.taskQueue,
      workflowExecutionTimeout: '1 minute',
    });
    if (stepMs < SLOW_MS) return;
    log.warn(
      { stepMs },
      `Temporal takes ${stepMs} ms from one activity to the next, so turns are slow. If it is a small server of your own, ` +
        'set in its dynamic configuration history.transferProcessorMaxPollRPS to 2000 (by default it is 20 per shard) ' +
        'and system.enableActivityEagerExecution to true',
    );
  } catch (error) {
    log.warn({ err: error }, 'how fast Temporal dispatches could not be measured');
  }
}
