import { z } from 'zod';
import type { DelegationRow, NewSessionRow, SessionRow } from '../catalog/schema.ts';
import type { CallToolInput } from '../core/history.ts';
import { ROLES, type Caller } from '../core/subject.ts';
import type { Engine } from '../engine/engine.ts';
import { EngineError } from '../engine/errors.ts';
import { newId } from '../engine/new-id.ts';
import { runnableAgent, startTurn } from '../engine/start-turn.ts';
import { delegatesOf } from '../spec/agent-spec.ts';

/**
 * How deep sessions may be nested: a session without a parent has children of depth 1. Faces check it, too, since the
 * specs of an agent and its delegates are known when its session is created.
 */
const MAX_DEPTH = 16;

/** A call that another agent is to answer in the session `childSessionId`. */
export interface DelegatedToolCall extends Pick<
  CallToolInput,
  'sessionId' | 'turnId' | 'threadId' | 'toolCallId' | 'specHash' | 'owner'
> {
  childSessionId: string;
  /** As the model wrote them. */
  arguments: string;
}

/** Validated before, in a limited time in which that may not have been completed. */
const parameters = z.object({ agent: z.string(), task: z.string().min(1) });

const storedRoles = z.array(z.enum(ROLES));

export function taskOf(call: Pick<DelegatedToolCall, 'arguments'>): z.infer<typeof parameters> {
  return parameters.parse(JSON.parse(call.arguments));
}

/**
 * Creates the session of a delegate: it belongs to the owner of the parent, with the roles that the parent's turn has.
 * Its turn counts against the limits on turns; it does not wait until there is room.
 * @throws EngineError if the delegate cannot run now, or the parent was deleted
 */
export async function createDelegate(engine: Engine, call: DelegatedToolCall): Promise<DelegationRow> {
  const { catalog, turnLimits } = engine;
  const { sessionId: parentId, childSessionId: id, turnId, threadId, toolCallId, specHash, owner } = call;
  const { agent: name } = taskOf(call);
  const delegates = delegatesOf(await catalog.agents.spec(specHash));
  const delegate = delegates.find((one) => one.name === name);
  if (!delegate) throw new EngineError('invalid_agent', `there is no agent ${name} to delegate to`);
  const [parent, own] = await Promise.all([catalog.sessions.get(parentId), catalog.delegations.get(parentId)]);
  if (!parent) throw new EngineError('session_not_found', 'the session was deleted');
  const depth = (own?.depth ?? 0) + 1;
  if (depth > MAX_DEPTH) throw new EngineError('invalid_agent', `agents can be nested ${MAX_DEPTH} levels deep`);
  const now = new Date().toISOString();
  const session: NewSessionRow & { draft_roles: string | null } = {
    id,
    type: parent.type,
    agent_name: delegate.name,
    agent_version: null,
    spec_hash: delegate.spec,
    draft_roles: owner.draftRoles && JSON.stringify(owner.draftRoles),
    title: null,
    subject_id: parent.subject_id,
    subject_type: parent.subject_type,
    subject_slug: parent.subject_slug,
    metadata: null,
    created_at: now,
    updated_at: now,
  };
  const { spec } = await runnableAgent(engine, { ...session, closed: 0 }, ownerOf(session));
  // A turn that ends when it needs an answer would be answered by another turn, for which nobody waits.
  if (spec.config?.pause !== 'wait') throw new EngineError('invalid_agent', `the agent ${name} requires pause: "wait"`);
  const release = await turnLimits.admit(session);
  try {
    const delegation = {
      child_session_id: id,
      child_turn_id: newId('turn'),
      parent_session_id: parentId,
      parent_turn_id: turnId,
      thread_id: threadId,
      tool_call_id: toolCallId,
      agent: delegate.name,
      depth,
      created_at: now,
    };
    const created = await catalog.delegations.create(delegation, session);
    if (!created) throw new EngineError('session_not_found', 'the session was deleted');
    return created;
  } finally {
    release();
  }
}

/** Starts the turn of a delegate. A turn that was started before stays as it is. @throws EngineError */
export async function startDelegateTurn(
  engine: Engine,
  { child_turn_id: resourceId }: DelegationRow,
  session: SessionRow,
  task: string,
): Promise<void> {
  const caller = ownerOf(session);
  const nothing = () => Promise.resolve();
  const { indexed } = await startTurn(engine, {
    session,
    caller,
    previous: { turn: 'none' },
    // The owner may have sent a message to the session before.
    onRunning: 'reject',
    claim: { resourceId, isNew: true, release: nothing, delivered: nothing, lost: nothing },
    agent: runnableAgent(engine, session, caller),
    loadInput: () => Promise.resolve([{ type: 'user.message', content: task }]),
    speculation: undefined,
    onIndexed: () => undefined,
  });
  await indexed;
}

/** The owner of a session, with the roles of its draft. */
function ownerOf(session: Pick<SessionRow, 'subject_id' | 'subject_type' | 'subject_slug' | 'draft_roles'>): Caller {
  return {
    subject: {
      subjectId: session.subject_id,
      subjectType: session.subject_type,
      subjectSlug: session.subject_slug,
    },
    roles: storedRoles.parse(JSON.parse(session.draft_roles ?? '[]')),
  };
}
