/** Names inside Temporal, in one place; the server's code uses them too. */

export function sessionWorkflowId(sessionId: string): string {
  return `session/${sessionId}`;
}

export function turnWorkflowId(turnId: string): string {
  return `turn/${turnId}`;
}

export function deleteSessionWorkflowId(sessionId: string): string {
  return `delete-session/${sessionId}`;
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

/**
 * A worker that dies with a workflow task in its hands blocks the workflow for this long (10 s by default). A task takes
 * milliseconds, or some hundred for a long history that has to be replayed.
 */
export const WORKFLOW_TASK_TIMEOUT = '5 seconds';

/** The headers of Temporal's in which travels what has caused something: the id of the request, and its trace. */
export const REQUEST_HEADER = 'everturn-request-id';
/** As Temporal's own interceptors for OpenTelemetry call it. */
export const TRACE_HEADER = '_tracer-data';
/** The trace of the turn before. */
export const PREVIOUS_TRACE_HEADER = 'everturn-previous-trace';

/**
 * The prefix of the encoding of a payload that the worker's codec has refused; the reason follows. No converter knows it,
 * so an Update with such an argument is rejected before it is accepted, and a workflow started with one never runs.
 */
export const REFUSED = 'refused';
