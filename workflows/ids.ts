/** Names inside Temporal, in one place; the server's code uses them too. */

export function sessionWorkflowId(sessionId: string): string {
  return `session/${sessionId}`;
}

export function turnWorkflowId(turnId: string): string {
  return `turn/${turnId}`;
}

/** The turn that a workflow id names; undefined if it names something else. */
export function turnIdOf(workflowId: string): string | undefined {
  return workflowId.startsWith('turn/') ? workflowId.slice('turn/'.length) : undefined;
}

export const SESSION_WORKFLOW = 'session';
export const TURN_WORKFLOW = 'turn';
