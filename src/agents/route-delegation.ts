import { createHash } from 'node:crypto';
import { DIGITS, timeOf, ulid } from '../core/ids.ts';
import type { ModelCall } from '../core/model-call.ts';
import { MAX_STARTED_BY_MESSAGE, MAX_STARTED_BY_TURN } from '../core/sub-agents.ts';
import type { SubAgentCall } from './start-sub-agent.ts';

type CallingThread = Pick<ModelCall, 'messageId' | 'mayStart' | 'subAgent'>;

/** The session in which another agent answers a call; `problem`: why none may be started. */
export type DelegationRoute = { sessionId: string } | { problem: string };

/** Whether a thread may give tasks to other agents: sub-agents start sub-agents, whose work ends with the turn. */
export function mayDelegate({ mayStart = 0, subAgent }: Pick<CallingThread, 'mayStart' | 'subAgent'>): boolean {
  return mayStart > 0 && !subAgent;
}

/** Decides whether a message of a thread may give a task to another agent. */
export function routeDelegation(
  { messageId, mayStart = 0, subAgent }: CallingThread,
  { index, started }: Pick<SubAgentCall, 'index' | 'started'>,
): DelegationRoute {
  if (subAgent) return { problem: 'A sub-agent cannot give tasks to other agents: do this task yourself.' };
  if (started >= mayStart) {
    const limits = `${MAX_STARTED_BY_MESSAGE} by one message, ${MAX_STARTED_BY_TURN} in all`;
    return { problem: `No more agents can be given tasks now (${limits}).` };
  }
  return { sessionId: delegateSessionId(messageId, index) };
}

/**
 * The id of the session that answers the call at `index` of a message: each attempt derives the same. It is hashed, since
 * the ids of a turn's events and threads are near that of its message.
 */
function delegateSessionId(messageId: string, index: number): string {
  const digits = createHash('sha256').update(`${messageId} ${index}`).digest().values();
  return ulid('ses', timeOf(messageId), () => (digits.next().value ?? 0) % DIGITS);
}
