import {
  NativeConnection,
  GracefulShutdownPeriodExpiredError,
  Worker,
  type ActivityInterceptorsFactory,
  type InjectedSinks,
  type WorkerDeploymentOptions,
  type WorkerOptions,
} from '@temporalio/worker';
import { createScheduledSessions } from '../api/agents-v2/scheduled-sessions.ts';
import { webhookFormats } from '../api/app.ts';
import { WebhookDeliverer } from '../features/webhooks/webhook-deliverer.ts';
import { createBeginModelCall } from '../features/speculation/begin-model-call.ts';
import { StepsAhead } from '../features/speculation/steps-ahead.ts';
import { createActivities } from '../../activities/index.ts';
import { startHousekeeping } from '../housekeeping/sweep.ts';
import { Delegator } from '../features/delegation/delegator.ts';
import { archive } from '../engine/archive-turn.ts';
import { Archiver } from '../engine/archiver.ts';
import { Conversations } from '../engine/conversations.ts';
import { OwnQueue } from './own-queue.ts';
import type { Check } from './readiness.ts';
import type { Services } from './services.ts';
import { activityScope, traceActivity, countRetries } from '../telemetry/activity-interceptors.ts';
import type { ProvisionedTemporal } from '../temporal-server/provision.ts';
import type { Cipher } from '../encryption/cipher.ts';
import type { Config } from '../config.ts';
import { sessionIdOf, turnIdOf } from '../core/temporal-names.ts';
import type { TraceSinks } from '../../workflows/context-propagation.ts';
import type { SpeculationSinks } from '../../workflows/begin.ts';
import type { ArchiveSinks } from '../../workflows/turn-watch.ts';
import type { TurnSinks } from '../../workflows/turn.ts';
import { workerConverterFor } from '../temporal/data-converter.ts';
import { warnOfSlowSteps } from '../temporal/slow-steps.ts';
import { WORKER_IDENTITY } from '../temporal/worker-identity.ts';
import { LeanWorker } from '../temporal/workflow-threads.ts';

interface RunningWorker {
  /** Fails if the worker is not running. */
  check: Check;
  /** Rejects if the worker fails; resolves when it has stopped. */
  finished: Promise<void>;
  /** Waits for running tools, releases model calls to other workers, then stops. */
  stop: () => Promise<void>;
}

/** Starts the worker and its housekeeping. */
export async function startWorker(
  services: Services,
  { temporal, workflowBundle }: { temporal: ProvisionedTemporal; workflowBundle: { code: string } },
): Promise<RunningWorker> {
  const { config, cipher, logs, history, blobs, losses, bus, speculativeCalls, metrics, log, sessionQueue } = services;
  const draining = new AbortController();
  const conversations = new Conversations({ logs, history, blobs, losses });
  const connection = await NativeConnection.connect(temporal.connectionOptions);
  const activityInterceptors = [
    // The embedded server is configured by this program.
    ...(temporal.embedded ? [] : [warnOfSlowSteps(log)]),
    activityScope,
    countRetries(metrics),
    traceActivity,
  ];
  const { acceptsUnencrypted, shutdownSeconds } = config;
  const { taskQueue } = config.temporal;
  const common = {
    connection,
    namespace: temporal.namespace,
    ...activityOptions({ cipher, acceptsUnencrypted, activityInterceptors, shutdownSeconds }),
  };
  const ownQueue = new OwnQueue({
    sharedQueue: taskQueue,
    log,
    options: () => ({ ...common, activities: { callTool: activities.callTool } }),
  });
  const sources = { ...services, conversations, draining: draining.signal };
  const stepsAhead = new StepsAhead(sources);
  // Workers start, notify and stop the work that agents delegate, with the functions that the API has for clients.
  const delegator = new Delegator({ engine: services, client: services.client });
  const scheduledSessions = createScheduledSessions(services);
  const dependencies = { ...sources, ownQueue, stepsAhead, delegator, scheduledSessions, taskQueue };
  const activities = createActivities(dependencies);
  speculativeCalls.serve(createBeginModelCall(dependencies), draining.signal);
  const archiveTurn = async (turnId: string, signal: AbortSignal) => {
    const isCopied = await archive({ ...services, turnId, signal });
    // Its session may have released its slot.
    sessionQueue.wake();
    return isCopied;
  };
  const archiver = new Archiver({
    archive: async (turnId, signal) => {
      await archiveTurn(turnId, signal);
      await delegator.turnEnded(turnId);
    },
    log,
  });
  const attempt = (work: Promise<unknown>, turnId: string): void => {
    work.catch((error: unknown) =>
      log.warn({ turnId, err: error }, 'the delegations of a turn were not settled; retrying'),
    );
  };
  // Called by workflows on this worker, and not when they are replayed.
  const sinks: InjectedSinks<TraceSinks & ArchiveSinks & TurnSinks & SpeculationSinks> = {
    traces: { turnEnded: { fn: (_workflow, span) => services.tracing?.turnEnded(span) } },
    archive: {
      turnEnded: {
        fn: ({ workflowId }, turnId) => {
          // A turn that was cancelled before its first model call has not claimed its speculative call.
          speculativeCalls.withdraw(turnId);
          archiver.turnEnded(turnId, sessionIdOf(workflowId));
          attempt(delegator.turnEnded(turnId), turnId);
        },
      },
    },
    speculation: {
      changed: { fn: (_workflow, turnId) => bus.hint(`command:${turnId}`) },
      modelCalled: {
        fn: ({ workflowId }, messageId) => stepsAhead.modelCalled(turnIdOf(workflowId) ?? '', messageId),
      },
    },
    turns: {
      cancelling: {
        fn: (_workflow, turnId) => {
          bus.hint(`cancel:${turnId}`);
          attempt(delegator.stopChildren(turnId), turnId);
        },
      },
      cancellingCalls: { fn: (_workflow, turnId) => bus.hint(`cancel:${turnId}`) },
      growing: { fn: (_workflow, turnId) => bus.hint(`growth:${turnId}`) },
    },
  };
  const worker = await createWorker(config.temporal, { ...common, workflowBundle, activities, sinks });
  const deliverer = new WebhookDeliverer({ ...services, formats: webhookFormats(services) });
  const housekeeping = startHousekeeping({ ...services, deliverer, taskQueue, archiveTurn, delegator });
  void services.toolPool.startPrograms(services.registry.programs);
  const finished = worker.run().catch((error: unknown) => {
    // An activity did not end even when it was cancelled; its time-out will end it.
    if (!(error instanceof GracefulShutdownPeriodExpiredError)) throw error;
    log.warn({ err: error }, 'the worker was stopped with work in progress');
  });
  return {
    check: { dependency: 'worker', problem: 'the worker is not running', run: () => checkState(worker) },
    finished,
    stop: async () => {
      const { numInFlightActivities: activities } = worker.getStatus();
      if (activities > 0) {
        log.info(
          { activities, seconds: shutdownSeconds },
          'the worker stops in mid-turn: model calls are repeated by another worker or after the next start, tools may finish',
        );
      }
      draining.abort();
      if (worker.getState() === 'RUNNING') worker.shutdown();
      await Promise.all([finished.catch(() => undefined), ownQueue.stop(), housekeeping.stop(), deliverer.stop()]);
      await archiver.stop();
      await sessionQueue.stop();
      await connection.close();
    },
  };
}

async function checkState(worker: Worker): Promise<void> {
  const state = worker.getState();
  if (state !== 'RUNNING') throw new Error(`it is ${state.toLowerCase()}`);
}

/** The settings of every worker that runs activities. */
export interface ActivitySettings {
  cipher: Cipher;
  /** Whether unencrypted commands are accepted although there are keys. */
  acceptsUnencrypted: boolean;
  activityInterceptors: ActivityInterceptorsFactory[];
  /** How long at-most-once tools may take to finish when the worker stops. */
  shutdownSeconds: number;
}

export function activityOptions(settings: ActivitySettings): Omit<WorkerOptions, 'taskQueue'> {
  const { cipher, acceptsUnencrypted, activityInterceptors, shutdownSeconds } = settings;
  const dataConverter = workerConverterFor(cipher, { acceptsUnencrypted });
  return {
    identity: WORKER_IDENTITY,
    ...(dataConverter && { dataConverter }),
    interceptors: { activity: activityInterceptors },
    shutdownGraceTime: shutdownSeconds * 1000,
    // An activity that does not end even when it is cancelled must not keep the process alive.
    shutdownForceTime: (shutdownSeconds + 10) * 1000,
    // Model and tool calls mostly wait, so their cost is memory.
    maxConcurrentActivityTaskExecutions: 1_000,
    // `withHeartbeat` sets the intervals. By default heartbeats are delayed by up to 0.8 of the heartbeat time-out.
    maxHeartbeatThrottleInterval: '10 milliseconds',
    defaultHeartbeatThrottleInterval: '10 milliseconds',
  };
}

/** Creates the worker for sessions, turns and their activities: one task queue, which eager dispatch requires. */
async function createWorker(
  { taskQueue, buildId, stackTraces }: Config['temporal'],
  options: Omit<WorkerOptions, 'taskQueue'>,
): Promise<Worker> {
  return (stackTraces ? Worker : LeanWorker).create({
    ...options,
    taskQueue,
    ...(buildId !== undefined && { workerDeploymentOptions: deploymentOptions(taskQueue, buildId) }),
    maxConcurrentLocalActivityExecutions: 200,
    maxConcurrentWorkflowTaskExecutions: 100,
    maxCachedWorkflows: 2_000,
    // With the default of 3, the further tool calls of a message go through the task queue.
    maxEagerActivityReservationsPerWorkflowTask: 50,
    // After a crash, workflow tasks wait this long on the dead worker's sticky queue.
    stickyQueueScheduleToStartTimeout: '1 second',
  });
}

/**
 * Makes the worker one of a version. Temporal then gives it the tasks of this version's turns, and while the version is
 * current also new turns and the tasks of all sessions, which sleep for years and would keep any version alive.
 */
function deploymentOptions(taskQueue: string, buildId: string): WorkerDeploymentOptions {
  return {
    version: { deploymentName: taskQueue, buildId },
    useWorkerVersioning: true,
    defaultVersioningBehavior: 'AUTO_UPGRADE',
  };
}
