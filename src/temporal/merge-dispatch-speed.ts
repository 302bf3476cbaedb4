import { newId } from '../engine/new-id.ts';
import type { Services } from '../server/services.ts';

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
