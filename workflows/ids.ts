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

export const SESSION_WORKFLOW = 'session';
export const TURN_WORKFLOW = 'turn';
export const DELETE_SESSION_WORKFLOW = 'deleteSession';

/**
 * A worker that dies with a workflow task in its hands blocks the workflow for this long (10 s by default). A task takes
 * milliseconds, or some hundred for a long history that has to be replayed.
 */
export const WORKFLOW_TASK_TIMEOUT = '5 seconds';

/** The header of Temporal's in which the id of the request that has caused something travels. */
export const REQUEST_HEADER = 'everturn-request-id';
