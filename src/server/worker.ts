import { NativeConnection, GracefulShutdownPeriodExpiredError, type Worker } from '@temporalio/worker';
import { createBeginModelCall } from '../speculation/begin-model-call.ts';
import { createActivities } from '../../activities/index.ts';
import { startHousekeeping } from '../housekeeping/sweep.ts';
import { archive } from '../engine/archive-turn.ts';
import { Conversations } from '../engine/conversations.ts';
import type { Check } from './readiness.ts';
import type { Services } from './services.ts';
import { activityScope } from '../telemetry/merge-activity-scope.ts';
import { traceActivity } from '../telemetry/activity-interceptors.ts';
import { countRetries } from '../telemetry/merge-count-retries.ts';
import type { ProvisionedTemporal } from '../temporal-server/provision.ts';
import { createWorker } from './merge-worker.ts';

export interface RunningWorker {
  /** Fails if the worker does not work. */
  check: Check;
  /** Rejects if the worker fails; settles when it has stopped. */
  finished: Promise<void>;
  /** Lets running tools finish, hands model calls to other workers, then stops. */
  stop: () => Promise<void>;
}

/** Starts the worker that runs sessions, turns and all that they do. */
export async function startWorker(
  services: Services,
  { temporal, workflowBundle }: { temporal: ProvisionedTemporal; workflowBundle: { code: string } },
): Promise<RunningWorker> {
  const { config, cipher, logs, history, blobs, headStarts, metrics, log } = services;
  const draining = new AbortController();
  const conversations = new Conversations({ logs, history, blobs });
  const connection = await NativeConnection.connect(temporal.connectionOptions);
  const dependencies = { ...services, conversations, draining: draining.signal };
  headStarts.serve(createBeginModelCall(dependencies), draining.signal);
  const worker = await createWorker({
    connection,
    namespace: temporal.namespace,
    taskQueue: config.temporal.taskQueue,
    workflowBundle,
    cipher,
    acceptsUnencrypted: config.acceptsUnencrypted,
    activities: createActivities(dependencies),
    activityInterceptors: [activityScope, countRetries(metrics), traceActivity],
    onTurnEnded: (span) => services.tracing?.turnEnded(span),
    shutdownSeconds: config.shutdownSeconds,
  });
  const housekeeping = startHousekeeping({
    ...services,
    taskQueue: config.temporal.taskQueue,
    archiveTurn: (turnId, signal) => archive({ ...services, turnId, signal }),
  });
  const finished = worker.run().catch((error: unknown) => {
    // Some activity did not even end when it was cut off; its time-out will tell.
    if (!(error instanceof GracefulShutdownPeriodExpiredError)) throw error;
    log.warn({ err: error }, 'the worker was stopped with work in progress');
  });
  return {
    check: { dependency: 'worker', problem: 'the worker does not run', run: () => checkState(worker) },
    finished,
    stop: async () => {
      draining.abort();
      if (worker.getState() === 'RUNNING') worker.shutdown();
      await Promise.all([finished.catch(() => undefined), housekeeping.stop()]);
      await connection.close();
    },
  };
}

async function checkState(worker: Worker): Promise<void> {
  const state = worker.getState();
  if (state !== 'RUNNING') throw new Error(`it is ${state.toLowerCase()}`);
}
