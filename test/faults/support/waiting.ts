import type { Frame } from '../../support/api-client.ts';
import type { RecordedTurn } from './recorder.ts';

/** A call that waits for a person or a client. */
export interface Waiting {
  id: string;
  threadId: string;
  needs: 'approval' | 'response' | 'answer';
}

/** The calls of an event, or of an action of an ended turn, that wait for a person. */
export function callsIn(request: Frame | RequiredAction): Waiting[] {
  if (request.type === 'tool.approval_required') {
    return request.tool_calls.map(({ id }) => ({ id, threadId: request.thread_id, needs: 'approval' }));
  }
  if (request.type !== 'tool.response_required') return [];
  return request.tool_calls.map(({ id, elicitation }) => ({
    id,
    threadId: request.thread_id,
    needs: elicitation ? 'answer' : 'response',
  }));
}

type RequiredAction = Extract<Awaited<RecordedTurn['done']>, { status: 'done' }>['required_actions'][number];

/** The calls that a turn leaves to the next one. */
export function waitingOf(end: Awaited<RecordedTurn['done']>): Waiting[] {
  return end.status === 'done' ? end.required_actions.flatMap(callsIn) : [];
}
