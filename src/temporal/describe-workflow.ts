import type { Client } from '@temporalio/client';
import { decodeArrayFromPayloads, optionalTsToMs } from './sdk-internals.ts';
import proto, { type temporal } from '@temporalio/proto';
import { attemptsSoFar, type Attempt } from '../core/attempts.ts';
import { classOf, failureMessage } from './data-converter.ts';
import { isNotFound } from './errors.ts';
import type { ReportedAttempts } from './own-attempts.ts';

/** The state of a workflow according to Temporal, without its history. */
export interface WorkflowExecution {
  workflowId: string;
  runId: string;
  status: string;
  startedAt: string | undefined;
  closedAt: string | undefined;
  historyEvents: number;
  historyBytes: number;
  /** The version of the workers that executed its last task; absent if they have none. */
  version?: string;
  pendingActivities: DescribedActivity[];
  workflowTask?: WorkflowTask;
}

export interface DescribedActivity {
  /** The id in the history. */
  activityId: string;
  name: string;
  state: string;
  attempt: number;
  /** When the current or next attempt was or will be scheduled. */
  scheduledAt: string | undefined;
  startedAt: string | undefined;
  heartbeatAt: string | undefined;
  worker: string | undefined;
  lastFailure?: { type: string | undefined; message: string };
  /** The attempts that are known; the last one has not ended. */
  attempts: Attempt[];
}

/** A workflow task that has not completed. */
export interface WorkflowTask {
  state: string;
  /** From 1; more than a few attempts mean that the code fails. */
  attempt: number;
  since: string | undefined;
  /** Why the last attempt failed. */
  failure?: string;
}

type Timestamp = temporal.api.workflow.v1.IPendingActivityInfo['lastStartedTime'];

/** Describes a workflow. Undefined if it does not exist. */
export async function describeExecution(client: Client, workflowId: string): Promise<WorkflowExecution | undefined> {
  const { connection, options } = client;
  const { namespace } = options;
  const execution = { workflowId };
  try {
    const found = await connection.workflowService.describeWorkflowExecution({ namespace, execution });
    const { workflowExecutionInfo: info, pendingActivities, pendingWorkflowTask } = found;
    const version = info?.versioningInfo?.deploymentVersion?.buildId;
    const task = pendingWorkflowTask && {
      state: nameOf(states.PendingWorkflowTaskState, pendingWorkflowTask.state),
      attempt: pendingWorkflowTask.attempt ?? 1,
      since: time(pendingWorkflowTask.originalScheduledTime),
    };
    return {
      workflowId,
      runId: info?.execution?.runId ?? '',
      status: nameOf(states.WorkflowExecutionStatus, info?.status),
      startedAt: time(info?.startTime),
      closedAt: time(info?.closeTime),
      historyEvents: Number(info?.historyLength ?? 0),
      historyBytes: Number(info?.historySizeBytes ?? 0),
      ...(version && { version }),
      pendingActivities: await Promise.all(pendingActivities.map((one) => pendingActivity(client, workflowId, one))),
      ...(task && {
        workflowTask: task.attempt > 1 ? { ...task, failure: await lastFailure(client, workflowId) } : task,
      }),
    };
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

async function pendingActivity(
  client: Client,
  workflowId: string,
  activity: temporal.api.workflow.v1.IPendingActivityInfo,
): Promise<DescribedActivity> {
  const { lastFailure: failure } = activity;
  const hasBegun = nameOf(states.PendingActivityState, activity.state) !== 'scheduled';
  const startedAt = time(activity.lastStartedTime);
  const begun = {
    number: activity.attempt ?? 1,
    ...(hasBegun && startedAt !== undefined && { at: startedAt }),
    ...(hasBegun && activity.lastWorkerIdentity && { worker: activity.lastWorkerIdentity }),
    ...(failure && { before: { isLost: Boolean(failure.timeoutFailureInfo), ...classOf(failure) } }),
  };
  return {
    activityId: activity.activityId ?? '',
    name: activity.activityType?.name ?? '',
    state: nameOf(states.PendingActivityState, activity.state),
    attempt: activity.attempt ?? 1,
    scheduledAt: time(activity.scheduledTime),
    startedAt: time(activity.lastStartedTime),
    heartbeatAt: time(activity.lastHeartbeatTime),
    worker: activity.lastWorkerIdentity || undefined,
    attempts: attemptsSoFar(begun, await reportedAttempts(client.options, workflowId, activity.heartbeatDetails)),
    ...(failure && {
      lastFailure: {
        type: failure.applicationFailureInfo?.type || undefined,
        message: await failureMessage(client.options.loadedDataConverter, failure),
      },
    }),
  };
}

/** The attempts that an activity has reported in its last heartbeat. */
async function reportedAttempts(
  { namespace, loadedDataConverter }: Client['options'],
  workflowId: string,
  details: temporal.api.common.v1.IPayloads | null | undefined,
): Promise<Attempt[]> {
  const context = { type: 'activity', isLocal: false, namespace, workflowId } as const;
  // Attempts that cannot be decrypted must not fail the whole description.
  const decoded = decodeArrayFromPayloads(loadedDataConverter, details?.payloads, context).catch(() => []);
  const [report] = await decoded;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `withHeartbeat`
  return (report as ReportedAttempts | undefined)?.attempts ?? [];
}

/** The last failure of a workflow task. The history has only the first of consecutive failures. */
async function lastFailure(client: Client, workflowId: string): Promise<string> {
  const { connection, options } = client;
  const { history } = await connection.workflowService.getWorkflowExecutionHistoryReverse({
    namespace: options.namespace,
    execution: { workflowId },
    maximumPageSize: 50,
  });
  for (const event of history?.events ?? []) {
    const failed = event.workflowTaskFailedEventAttributes;
    if (failed?.failure) return failureMessage(options.loadedDataConverter, failed.failure);
    if (event.workflowTaskTimedOutEventAttributes) return 'the worker did not respond in time';
  }
  return 'unknown failure';
}

const states = proto.temporal.api.enums.v1;

/** Formats an enum value: `PENDING_ACTIVITY_STATE_CANCEL_REQUESTED` becomes `cancel requested`. */
function nameOf(states: Record<number, string>, value: number | null | undefined): string {
  const name = states[value ?? 0] ?? '';
  return name
    .replace(/^(?:PENDING_ACTIVITY_STATE|PENDING_WORKFLOW_TASK_STATE|WORKFLOW_EXECUTION_STATUS)_/, '')
    .replaceAll('_', ' ')
    .toLowerCase();
}

function time(at: Timestamp): string | undefined {
  const ms = optionalTsToMs(at);
  return ms === undefined ? undefined : new Date(ms).toISOString();
}
