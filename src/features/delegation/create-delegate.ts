import { z } from 'zod';
import type { KernelCatalog } from '../../catalog/catalog.ts';
import type { NewSessionRow } from '../../catalog/schema.ts';
import { subjectOf } from '../../catalog/sessions.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import { rolesIn } from '../../catalog/subject-roles.ts';
import type { CallToolInput } from '../../core/history.ts';
import type { Engine } from '../../engine/engine.ts';
import { EngineError } from '../../engine/errors.ts';
import type { SessionQueue } from '../agent-sessions/session-queue.ts';
import type { SessionRequests } from '../agent-sessions/session-requests.ts';
import type { Delegations } from './delegation-rows.ts';
import { runnableAgent } from '../../engine/start-turn.ts';
import { delegatesOf } from '../../spec/agent-spec.ts';

/**
 * The maximum depth of nested sessions: a session without a parent has children of depth 1. The APIs check it, too,
 * since the specs of an agent and its delegates are known when its session is created.
 */
const MAX_DEPTH = 16;

/** The services that create the session of a delegate. */
export type DelegationServices = Pick<Engine, 'agentCheck' | 'turnLimits'> & {
  catalog: KernelCatalog & { delegations: Delegations; sessionRequests: SessionRequests };
  sessionQueue: Pick<SessionQueue, 'create'>;
};

/** A call that another agent executes in the session `childSessionId`. */
export interface DelegatedToolCall extends Pick<
  CallToolInput,
  'sessionId' | 'turnId' | 'threadId' | 'toolCallId' | 'specHash' | 'owner'
> {
  childSessionId: string;
  /** As the model wrote them. */
  arguments: string;
}

/** Parsed again, since the time limit of the earlier validation may have ended before it was complete. */
const parameters = z.object({ agent: z.string(), task: z.string().min(1) });

/**
 * Creates the session of a delegate, whose first turn the session queue then starts. It belongs to the owner of the
 * parent, and has the roles of the parent's turn. It counts against the limits of the parent's owner, and is rejected
 * instead of queued if they are reached. Returns a function to call once the turn was started or rejected: until then,
 * the turn is counted here.
 * @throws EngineError if the delegate cannot run now, or the parent was deleted
 */
export async function createDelegate(engine: DelegationServices, call: DelegatedToolCall): Promise<() => void> {
  const { catalog, turnLimits, sessionQueue } = engine;
  const { sessionId: parentId, childSessionId: id, turnId, threadId, toolCallId, specHash, owner } = call;
  const { agent: name, task } = parameters.parse(JSON.parse(call.arguments));
  const delegates = delegatesOf(await catalog.agents.spec(specHash));
  const delegate = delegates.find((one) => one.name === name);
  if (!delegate) throw new EngineError('invalid_agent', `there is no agent ${name} to delegate to`);
  const [parent, parentRequest, own] = await Promise.all([
    catalog.sessions.get(parentId),
    catalog.sessionRequests.get(parentId),
    catalog.delegations.get(parentId),
  ]);
  if (!parent) throw new EngineError('session_not_found', 'the session was deleted');
  const depth = (own?.depth ?? 0) + 1;
  if (depth > MAX_DEPTH) throw new EngineError('invalid_agent', `agents can be nested ${MAX_DEPTH} levels deep`);
  const now = new Date().toISOString();
  const roles = JSON.stringify(owner.draftRoles ?? []);
  const session: NewSessionRow & { draft_roles: string | null } = {
    id,
    type: isOfRun(parent) ? 'run/delegate' : parent.type,
    agent_name: delegate.name,
    agent_version: null,
    spec_hash: delegate.spec,
    draft_roles: owner.draftRoles && roles,
    title: null,
    subject_id: parent.subject_id,
    subject_type: parent.subject_type,
    subject_slug: parent.subject_slug,
    metadata: null,
    created_at: now,
    updated_at: now,
  };
  const caller = { subject: subjectOf(parent), roles: rolesIn(session.draft_roles ?? '[]') };
  const { spec } = await runnableAgent(engine, { ...session, closed: 0 }, caller);
  // Without "wait", a turn ends when it needs an answer. The answer starts another turn, whose result has no reader.
  if (spec.config?.pause !== 'wait') throw new EngineError('invalid_agent', `the agent ${name} requires pause: "wait"`);
  const release = await turnLimits.admit(session);
  try {
    await sessionQueue.create({
      session,
      request: {
        session_id: id,
        request: null,
        agent: parent.type === 'session' ? delegate.name : null,
        agent_revision: null,
        group_id: null,
        parent_session_id: parentId,
        first_message: task,
        idle_timeout_s: null,
        roles,
        takes_slot: parentRequest?.takes_slot ?? 0,
      },
      input: [{ type: 'user.message', content: task }],
      // A queued child could wait for the slot of its own parent, which waits for the child.
      mayQueue: false,
      delegation: {
        child_session_id: id,
        parent_session_id: parentId,
        parent_turn_id: turnId,
        thread_id: threadId,
        tool_call_id: toolCallId,
        agent: delegate.name,
        depth,
        created_at: now,
      },
    });
    return release;
  } catch (error) {
    release();
    throw error;
  }
}
