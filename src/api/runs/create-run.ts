import type { Caller } from '../../core/subject.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { ownerColumns } from '../../catalog/sessions.ts';
import { newId } from '../../engine/new-id.ts';
import { claimByKey, type NamedRequest, type SharedClaim } from '../../engine/request-claims.ts';
import { hasTurn } from '../../engine/access.ts';
import { EngineError, isRejected } from '../../engine/errors.ts';
import { pinnedAgents } from '../../engine/pinned-agents.ts';
import { SchemaBudget } from '../../engine/schema-budget.ts';
import { ownerOf, runnableAgent, startTurn, type RunnableAgent, type StartedTurn } from '../../engine/start-turn.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { RunAgent } from './agent-to-spec.ts';
import { addLogContext } from '../../telemetry/log-context.ts';
import type { ApiContext } from '../http/context.ts';
import type { ApiError } from '../http/errors.ts';
import type { GivenConversation } from '../../core/given-conversation.ts';
import { runIdsOf, runNotFound, type RunIds } from '../../features/run-support/runs.ts';

/** A validated request for a run. */
export interface NewRun {
  agent: RunAgent & {
    name: string;
    /** The version of a registered agent; null for another one. */
    version: number | null;
    /** It runs with the rights of a registered agent; otherwise with those of the caller. */
    isRegistered: boolean;
    /** The model is named by the request, not by a registered agent. */
    hasNewModel: boolean;
  };
  conversation: GivenConversation;
  /** The calls without a result that the conversation had. */
  repaired: string[];
  metadata: Record<string, string>;
}

/** The run of a request: a new one, or the run of an equal request before it. */
interface ClaimedRun extends RunIds {
  claim: SharedClaim;
  caller: Caller;
}

/** @throws EngineError `idempotency_key_reused` */
export async function claimRun(
  { catalog }: Pick<ApiContext, 'catalog'>,
  request: Pick<NamedRequest, 'caller' | 'key' | 'body'>,
): Promise<ClaimedRun> {
  const resourceId = newId('turn');
  const { sessionId } = runIdsOf(resourceId);
  const claim = await claimByKey({ catalog, ...request, resource: 'runs', resourceId, sessionId, isKept: true });
  const ids = runIdsOf(claim.resourceId);
  addLogContext({ sessionId: ids.sessionId, turnId: ids.turnId });
  return { ...ids, claim, caller: request.caller };
}

interface StartedRun extends StartedTurn {
  session: SessionRow;
}

/**
 * Starts a claimed run; undefined if an equal request has started it. `read` validates the request, and is not called
 * for an existing run: a repetition gets it even if its agent was changed or deleted. A rejection leaves no trace.
 * @throws ApiError or EngineError
 */
export async function startRun(
  context: ApiContext,
  { sessionId, turnId, claim, caller }: ClaimedRun,
  { read, rateLimitError }: { read: () => Promise<NewRun>; rateLimitError: ApiError | undefined },
): Promise<StartedRun | undefined> {
  const { catalog, turnLimits } = context;
  const existing = claim.isNew ? undefined : await catalog.sessions.get(sessionId);
  if (existing && (await hasTurn(context, existing, turnId))) return undefined;
  let endAdmission = (): void => undefined;
  let isInserted = false;
  try {
    if (rateLimitError) throw rateLimitError;
    endAdmission = await turnLimits.admit({ id: sessionId, subject_id: caller.subject.subjectId });
    const run = await read();
    const { session, runnable, isNew } = await insert(context, { sessionId, caller, run });
    isInserted = isNew;
    if (!claim.isNew && !(await claim.confirm())) {
      await withdraw(context, { sessionId, turnId, claim }, isInserted);
      throw new EngineError('unavailable', 'another request is in progress with this Idempotency-Key: try again');
    }
    const { agent, conversation, repaired } = run;
    const started = await startTurn(context, {
      session,
      caller,
      previous: { turn: 'none' },
      onRunning: 'reject',
      claim,
      agent: Promise.resolve(runnable),
      loadInput: () => Promise.resolve([]),
      conversation: { json: JSON.stringify(conversation), ...(repaired.length > 0 && { repaired }) },
      secrets: agent.secrets && JSON.stringify(agent.secrets),
      speculation: undefined,
      onIndexed: endAdmission,
    });
    return { session, ...started };
  } catch (error) {
    endAdmission();
    if (isRejected(error)) await withdraw(context, { sessionId, turnId, claim }, isInserted);
    throw error;
  }
}

/** Removes the session and the key of a rejected request, unless an equal request has begun the run meanwhile. */
async function withdraw(
  context: ApiContext,
  { sessionId, turnId, claim }: Pick<ClaimedRun, 'sessionId' | 'turnId' | 'claim'>,
  isInserted: boolean,
): Promise<void> {
  const { sessions } = context.catalog;
  const session = await sessions.get(sessionId);
  if (!session) {
    if (claim.isNew) await claim.release();
  } else if (isInserted && !(await hasTurn(context, session, turnId))) {
    // The key is deleted with the session.
    await sessions.delete(sessionId, new Date().toISOString());
  }
}

/**
 * The session of a run, and the agent with which it runs: those of the first request, if the request is repeated.
 * @throws EngineError
 */
async function insert(
  context: ApiContext,
  { sessionId, caller, run: { agent, metadata } }: { sessionId: string; caller: Caller; run: NewRun },
): Promise<{ session: SessionRow; runnable: RunnableAgent; isNew: boolean }> {
  const { catalog, agentCheck, config } = context;
  const { name, version, isRegistered, hasNewModel, pathOf } = agent;
  const spec = withRetention(agent.spec, config.runRetentionDays);
  const type = 'run';
  const draftRoles = isRegistered ? null : JSON.stringify(caller.roles);
  const owner = ownerOf({ subject_id: caller.subject.subjectId, type, draft_roles: draftRoles }, caller);
  const mistake = hasNewModel ? agentCheck.firstMistake(spec) : undefined;
  const budget = isRegistered ? undefined : new SchemaBudget();
  const problem = mistake ?? (await agentCheck.firstProblem(spec, { owner, budget }));
  if (problem) throw new EngineError(problem.code, problem.message, { param: pathOf(problem.param) });
  if (isRegistered && version !== null) await agentCheck.logWarnings({ name, version, spec });
  const agents = await pinnedAgents(spec, { catalog, agentCheck, owner });
  const now = new Date().toISOString();
  const inserted = await catalog.sessions.insert({
    id: sessionId,
    type,
    agent_name: name,
    agent_version: version,
    spec_hash: await catalog.agents.putSpec(spec, now),
    draft_roles: draftRoles,
    title: null,
    ...ownerColumns(caller.subject),
    metadata: Object.keys(metadata).length > 0 ? JSON.stringify(metadata) : null,
    created_at: now,
    updated_at: now,
  });
  if (inserted) return { session: inserted, runnable: { spec, agents }, isNew: true };
  const session = await catalog.sessions.get(sessionId);
  if (!session) throw runNotFound(runIdsOf(sessionId).runId);
  return { session, runnable: await runnableAgent(context, session, caller), isNew: false };
}

/** The retention of a run is that of its agent, or else the server's. */
function withRetention(spec: AgentSpec, days: number): AgentSpec {
  const own = spec.config?.retention_days;
  return own === undefined || own === null
    ? { ...spec, config: { ...spec.config, ...(days > 0 && { retention_days: days }) } }
    : spec;
}
