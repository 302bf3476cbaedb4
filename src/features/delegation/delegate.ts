import { createHash } from 'node:crypto';
import { DIGITS, timeOf, ulid } from '../../core/ids.ts';
import type { ModelCall } from '../../core/model-call.ts';
import { MAX_STARTED_BY_MESSAGE, MAX_STARTED_BY_TURN } from '../../core/sub-agents.ts';
import { callHash } from '../../engine/call-hash.ts';
import { delegatesOf } from '../../spec/agent-spec.ts';
import { startedAgents, type SystemTool } from '../../tools/system-tool.ts';

/** Lets the model give tasks to other agents, if its agent has delegates. */
export const DELEGATE: SystemTool = {
  name: 'delegate',
  offer: (spec) => {
    const delegates = delegatesOf(spec);
    if (delegates.length === 0) return undefined;
    const list = delegates.map(({ name, description }) => `- ${name}: ${description}`).join('\n');
    return {
      description:
        'Give a task to another agent, which works on it by itself, and get its answer as the result. ' +
        `Agents that get tasks in one message work in parallel. The agents are:\n${list}`,
      parameters: {
        type: 'object',
        properties: {
          agent: { type: 'string', enum: delegates.map(({ name }) => name) },
          task: {
            type: 'string',
            minLength: 1,
            description: 'The task, complete in itself: the agent does not see this conversation.',
          },
        },
        required: ['agent', 'task'],
        additionalProperties: false,
      },
    };
  },
  // Sub-agents have no delegates: they start sub-agents, whose work ends with the turn.
  isOffered: ({ mayStart = 0, subAgent }) => mayStart > 0 && !subAgent,
  route: ({ call, index, earlier, asDraft, modelCall }) => {
    const delegated = routeDelegation(modelCall, { index, started: startedAgents(earlier) });
    if ('problem' in delegated) return { route: { to: 'answered' }, ...delegated };
    return { route: { to: 'session', ...delegated, callHash: callHash(call), ...asDraft } };
  },
};

type CallingThread = Pick<ModelCall, 'messageId' | 'mayStart' | 'subAgent'>;

/** The session in which another agent executes a call; `problem`: why none may be started. */
type DelegationRoute = { sessionId: string } | { problem: string };

/** Decides whether the call at `index` of a message may start a delegate. `started`: those of its earlier calls. */
export function routeDelegation(
  { messageId, mayStart = 0, subAgent }: CallingThread,
  { index, started }: { index: number; started: number },
): DelegationRoute {
  if (subAgent) return { problem: 'A sub-agent cannot give tasks to other agents: do this task yourself.' };
  if (started >= mayStart) {
    const limits = `${MAX_STARTED_BY_MESSAGE} by one message, ${MAX_STARTED_BY_TURN} in all`;
    return { problem: `No more agents can be given tasks now (${limits}).` };
  }
  return { sessionId: delegateSessionId(messageId, index) };
}

/**
 * The id of the delegate's session for the call at `index` of a message: each attempt derives the same id. It is
 * hashed, since the ids of a turn's events and threads are close to the id of its message.
 */
function delegateSessionId(messageId: string, index: number): string {
  const digits = createHash('sha256').update(`${messageId} ${index}`).digest().values();
  return ulid('ses', timeOf(messageId), () => (digits.next().value ?? 0) % DIGITS);
}
