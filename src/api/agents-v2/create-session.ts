import { isRejected } from '../../engine/errors.ts';
import type { Config } from '../../config.ts';
import type { Caller } from '../../core/subject.ts';
import { deleteSession, type Engine } from '../../engine/engine.ts';
import { byKey } from '../../engine/request-claims.ts';
import type { ApiContext } from '../http/context.ts';
import { authorizeSession } from '../../engine/access.ts';
import { ownerColumns } from '../../catalog/sessions.ts';
import { storeDelegates } from './delegates.ts';
import { resolveAgent } from './resolve-agent.ts';
import { readInput } from './message-input.ts';
import { fromUuid, newSessionId } from './session-ids.ts';
import { requireBudget } from './token-budget.ts';
import type { StoredRequest } from './stored-request.ts';
import type { UserMessage } from './wire/messages.ts';
import type { SessionRequest } from './wire/session.ts';

/** The services that create a session: fewer than those of the API, since workers create sessions, too. */
export type SessionCreation = Engine &
  Pick<ApiContext, 'allowPrivateUrls' | 'budgets' | 'catalog' | 'registry' | 'sessionQueue'> & {
    config: Pick<Config, 'defaultModel' | 'subjectBudget'>;
  };

interface NewSession {
  request: SessionRequest;
  caller: Caller;
  /** `Idempotency-Key`. */
  key: string | undefined;
  /** Rejects a request that is no repetition. */
  rateLimitError: Error | undefined;
  host: string | undefined;
  /** The schedule that creates it. */
  scheduleId?: string;
}

/**
 * Creates a session with its first messages, and returns its id. A repetition with the same key completes the creation
 * that the first request has begun, so that a key never blocks.
 * @throws ApiError or EngineError
 */
export async function createSession(context: SessionCreation, session: NewSession): Promise<string> {
  const { caller, key, request } = session;
  const id = newSessionId();
  if (key === undefined) return createUnnamed(context, session, id);
  const { catalog } = context;
  const named = { catalog, caller, resource: 'v2/sessions', key, body: request, resourceId: id, sessionId: id };
  return byKey(named, ({ resourceId }) => createWithId(context, session, resourceId));
}

/**
 * As `createWithId`. A session that could not be started is deleted: its caller has neither its id nor a key and will
 * repeat the request, so the session must not begin later.
 */
async function createUnnamed(context: SessionCreation, session: NewSession, id: string): Promise<string> {
  try {
    return await createWithId(context, session, id);
  } catch (error) {
    try {
      if (await context.catalog.sessions.get(id)) await deleteSession(context, { id });
    } catch (failure) {
      context.log.warn({ sessionId: id, err: failure }, 'a session that was not started could not be deleted');
    }
    throw error;
  }
}

/** Creates the session with this id, or completes its creation. @throws ApiError or EngineError */
export async function createWithId(
  context: SessionCreation,
  session: Omit<NewSession, 'key'>,
  id: string,
): Promise<string> {
  const { catalog, sessionQueue } = context;
  if (await catalog.sessions.get(id)) {
    await sessionQueue.start(id);
    return id;
  }
  const { caller, rateLimitError } = session;
  if (rateLimitError) throw rateLimitError;
  const endAdmission = await context.turnLimits.admit({ id, subject_id: caller.subject.subjectId });
  try {
    await requireBudget(context, caller.subject.subjectId);
    await insert(context, session, id);
    await sessionQueue.start(id).catch(async (error: unknown) => {
      // The caller gets the error instead of the session.
      if (isRejected(error)) await catalog.sessions.delete(id, new Date().toISOString());
      throw error;
    });
    return id;
  } finally {
    endAdmission();
  }
}

/** @throws ApiError or EngineError */
async function insert(
  context: SessionCreation,
  { request, caller, host, scheduleId }: Omit<NewSession, 'key'>,
  id: string,
): Promise<void> {
  const { catalog } = context;
  const messages = toList(request.messages);
  const { agent, registered, named, ...specs } = await resolveAgent(context, request, {
    caller,
    isStored: scheduleId !== undefined,
  });
  const parent = request.parent_session_id;
  const parentId = parent ? fromUuid(parent, 'parent_session_id') : null;
  if (parentId) await authorizeSession(catalog, parentId, caller, 'send');
  // Read now, since the request may have ended when the session begins.
  const input = await readInput(messages, { ...context, caller, host });
  const now = new Date().toISOString();
  const stored: StoredRequest = { ...request, agent, messages };
  await context.sessionQueue.create({
    session: {
      id,
      type: registered ? 'session' : 'session/draft',
      agent_name: registered?.name ?? agent.name,
      agent_version: registered?.revision ?? null,
      spec_hash: await catalog.agents.putSpec(await storeDelegates(catalog, specs, now), now),
      title: null,
      ...ownerColumns(caller.subject),
      ...(!registered && { draft_roles: JSON.stringify(caller.roles) }),
      metadata: null,
      created_at: now,
      updated_at: now,
    },
    request: {
      session_id: id,
      request: JSON.stringify(stored),
      agent: named?.name ?? null,
      agent_revision: named?.revision ?? null,
      group_id: request.group_id ?? null,
      parent_session_id: parentId,
      schedule_id: scheduleId ?? null,
      first_message: messages[0]?.message ?? null,
      idle_timeout_s: request.idle_timeout_s ?? null,
      delete_after_min: request.delete_after_min,
      roles: JSON.stringify(caller.roles),
    },
    input,
    // A parent waits for its children, so a queued child could wait for its own parent.
    mayQueue: request.queue && !parentId,
  });
}

export function toList(messages: SessionRequest['messages']): UserMessage[] {
  if (messages === null || messages === undefined) return [];
  if (typeof messages === 'string') return [{ type: 'user_message', message: messages, caller_id: 'user' }];
  return Array.isArray(messages) ? messages : [messages];
}
