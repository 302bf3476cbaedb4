import proto, { type temporal } from '@temporalio/proto';
import type { Client } from '@temporalio/client';
import { optionalTsToMs } from './sdk-internals.ts';

/**
 * A poll waits up to a minute for a task. Temporal lists pollers for five minutes, so an entry older than this belongs
 * to a worker that has stopped.
 */
const POLLED_WITHIN_MS = 75_000;

const TIMEOUT_MS = 2_000;

/** @throws Error if no worker polls the task queue for new turns, which are those of the current version */
export async function checkPollers(client: Client, taskQueue: string): Promise<void> {
  const { connection, options } = client;
  const { pollers, versioningInfo } = await connection.withDeadline(Date.now() + TIMEOUT_MS, () =>
    connection.workflowService.describeTaskQueue({
      namespace: options.namespace,
      taskQueue: { name: taskQueue },
      taskQueueType: proto.temporal.api.enums.v1.TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    }),
  );
  const since = Date.now() - POLLED_WITHIN_MS;
  const polling = pollers.filter(({ lastAccessTime }) => (optionalTsToMs(lastAccessTime) ?? 0) >= since);
  const versions = new Set(polling.map(versionOf));
  const current = versioningInfo?.currentDeploymentVersion?.buildId ?? UNVERSIONED;
  if (versions.has(current)) return;
  if (current !== UNVERSIONED) {
    throw new Error(
      `no worker of the current version ${current} polls the task queue ${taskQueue}: start one with ` +
        `EVERTURN_BUILD_ID=${current} everturn worker, or make another version current`,
    );
  }
  throw new Error(
    versions.size === 0
      ? `no worker polls the task queue ${taskQueue}: start one with everturn worker`
      : `the workers that poll the task queue ${taskQueue} are of the versions ${[...versions].join(', ')}, and none ` +
          'is current: make one current with temporal worker deployment set-current-version',
  );
}

/** Stands for the version of workers that have none. */
const UNVERSIONED = '';

/** Workers without a version report the hash of their workflow bundle. */
function versionOf({ deploymentOptions }: temporal.api.taskqueue.v1.IPollerInfo): string {
  const { WORKER_VERSIONING_MODE_VERSIONED: versioned } = proto.temporal.api.enums.v1.WorkerVersioningMode;
  return (deploymentOptions?.workerVersioningMode === versioned && deploymentOptions.buildId) || UNVERSIONED;
}
