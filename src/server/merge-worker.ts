import {
  Worker,
  type ActivityInterceptorsFactory,
  type InjectedSinks,
  type NativeConnection,
} from '@temporalio/worker';
import type { Cipher } from '../encryption/cipher.ts';
import type { TurnSpan } from '../core/trace-context.ts';
import type { TraceSinks } from '../../workflows/context-propagation.ts';
import { workerConverterFor } from '../temporal/data-converter.ts';
import type { createActivities } from '../../activities/index.ts';

interface WorkerSettings {
  connection: NativeConnection;
  namespace: string;
  taskQueue: string;
  workflowBundle: { code: string };
  cipher: Cipher;
  /** Whether what is not encrypted is obeyed although there are keys. */
  acceptsUnencrypted: boolean;
  activities: ReturnType<typeof createActivities>;
  activityInterceptors: ActivityInterceptorsFactory[];
  /** Told of each turn with a trace that ends here. */
  onTurnEnded: (span: TurnSpan) => void;
  /** How long tools that must not be cut off may take to finish when the worker is asked to stop. */
  shutdownSeconds: number;
}

/** The worker that runs sessions, turns and their activities: one task queue for all, as eager dispatch needs it. */
export async function createWorker(settings: WorkerSettings): Promise<Worker> {
  const { shutdownSeconds, activityInterceptors, onTurnEnded, cipher, acceptsUnencrypted, ...options } = settings;
  const dataConverter = workerConverterFor(cipher, { acceptsUnencrypted });
  const sinks: InjectedSinks<TraceSinks> = {
    traces: { turnEnded: { fn: (_workflow, span) => onTurnEnded(span), callDuringReplay: false } },
  };
  return Worker.create({
    ...options,
    ...(dataConverter && { dataConverter }),
    interceptors: { activity: activityInterceptors },
    sinks,
    shutdownGraceTime: shutdownSeconds * 1000,
    // An activity that does not even end when it is cut off must not keep the process.
    shutdownForceTime: (shutdownSeconds + 10) * 1000,
    // Model and tool calls only wait; what they cost is memory.
    maxConcurrentActivityTaskExecutions: 1_000,
    maxConcurrentLocalActivityExecutions: 200,
    maxConcurrentWorkflowTaskExecutions: 100,
    maxCachedWorkflows: 2_000,
    // With the default of 3 a message with more tool calls goes through the task queue.
    maxEagerActivityReservationsPerWorkflowTask: 50,
    // After a crash the tasks of the dead worker wait for this long on its own queue.
    stickyQueueScheduleToStartTimeout: '1 second',
    // An activity hears of its cancellation with a heartbeat; by default it may take most of the heartbeat time-out.
    maxHeartbeatThrottleInterval: '500 milliseconds',
    defaultHeartbeatThrottleInterval: '500 milliseconds',
  });
}
