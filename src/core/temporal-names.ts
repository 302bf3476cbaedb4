/** Names inside Temporal. Workflows and the server's code both use them. */

export function sessionWorkflowId(sessionId: string): string {
  return `session/${sessionId}`;
}

export function turnWorkflowId(turnId: string): string {
  return `turn/${turnId}`;
}

export function deleteSessionWorkflowId(sessionId: string): string {
  return `delete-session/${sessionId}`;
}

/** The id of a schedule in Temporal. */
export function temporalScheduleId(scheduleId: string): string {
  return `schedule/${scheduleId}`;
}

/**
 * The id of the workflow that a schedule starts, with its UUID. Temporal appends the time, a caller a text that is used
 * once.
 */
export function scheduledRunWorkflowId(scheduleId: string): string {
  return `scheduled-run/${scheduleId}`;
}

/** The schedule that a workflow id names; undefined if it names something else. */
export function scheduleIdOf(workflowId: string): string | undefined {
  return /^scheduled-run\/([\da-f-]{36})/.exec(workflowId)?.[1];
}

/** The turn that a workflow id names; undefined if it names something else. */
export function turnIdOf(workflowId: string): string | undefined {
  return workflowId.startsWith('turn/') ? workflowId.slice('turn/'.length) : undefined;
}

/** The session that a workflow id names; undefined if it names something else. */
export function sessionIdOf(workflowId: string): string | undefined {
  return workflowId.startsWith('session/') ? workflowId.slice('session/'.length) : undefined;
}

/** The session whose removal a workflow id names; undefined if it names something else. */
export function deletedSessionIdOf(workflowId: string): string | undefined {
  return workflowId.startsWith('delete-session/') ? workflowId.slice('delete-session/'.length) : undefined;
}

export const SESSION_WORKFLOW = 'session';
export const TURN_WORKFLOW = 'turn';
export const DELETE_SESSION_WORKFLOW = 'deleteSession';
export const SCHEDULED_RUN_WORKFLOW = 'scheduledRun';

/** The task queue of all kernel hosts, beside that of the workers. */
export function kernelQueue(taskQueue: string): string {
  return `${taskQueue}/kernels`;
}

/**
 * How long a workflow is blocked if a worker dies while it runs a workflow task (10 s by default). A task takes
 * milliseconds, or some hundred for a long history that has to be replayed.
 */
export const WORKFLOW_TASK_TIMEOUT = '5 seconds';

/** The signal that carries a command of the API to a turn. */
export const TURN_COMMAND = 'command';

/** The signal that cancels a turn. */
export const CANCEL_TURN = 'cancelTurn';

/** The details with which the start of a server terminates turns of an earlier version that it does not continue. */
export const OLD_RULES = 'old-rules';

/** The Temporal header with the id of the request that caused a command. */
export const REQUEST_HEADER = 'everturn-request-id';
/** The Temporal header with the trace of that request, named as in Temporal's interceptors for OpenTelemetry. */
export const TRACE_HEADER = '_tracer-data';
/** The Temporal header with the trace of the previous turn. */
export const PREVIOUS_TRACE_HEADER = 'everturn-previous-trace';

/**
 * The start of the encoding of a payload that the worker's codec has refused; the reason follows. No converter has this
 * encoding, so an Update with such an argument is rejected before it is accepted, and a workflow that was started with
 * one never runs.
 */
export const REFUSED = 'refused';
