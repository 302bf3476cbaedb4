import { setTimeout as sleep } from 'node:timers/promises';
import { isOwn, mayOnSession } from '../auth/rights.ts';
import type { Caller } from '../core/subject.ts';
import { MAX_PAYLOAD_BYTES, offloadItems, type BlobTarget } from '../blobs/offload.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isOfRun } from '../catalog/session-types.ts';
import type { SessionOwner } from '../core/history.ts';
import { timeOf } from '../core/ids.ts';
import { titleOf } from '../core/input-rules.ts';
import { turnCreated } from '../core/turn.ts';
import type { ConversationRef, InputItem } from '../core/records/input.ts';
import type { TurnCreated } from '../core/records/turn.ts';
import { budgetOf } from '../spec/budget-spec.ts';
import { answersAtLimit, hasServers, iterationLimit, type AgentSpec } from '../spec/agent-spec.ts';
import { codeActionsOf } from '../spec/code-actions.ts';
import type { CreateTurnCommand, OnRunning } from '../core/session.ts';
import { z } from 'zod';
import { sessionNotFound } from './access.ts';
import { checkAgent } from './agent-check.ts';
import { checkAnswers } from './check-answers.ts';
import { inlineBytesOf } from './edited-arguments.ts';
import type { Engine } from './engine.ts';
import { EngineError, isRejected } from './errors.ts';
import { pinnedAgents } from './pinned-agents.ts';
import type { RequestClaim } from './request-claims.ts';
import type { Speculation } from './speculation.ts';
import { inputFiles, storeInput, withPaths } from './store-input.ts';

/** The bytes that a turn's input may take in a Temporal payload; the rest of the payload is for the turn itself. */
export const MAX_INPUT_BYTES = MAX_PAYLOAD_BYTES - 32 * 1024;

/** The turn that a new turn follows: the session's last one, none, or the one with this id. */
export type PreviousTurn = CreateTurnCommand['previous'];

/** What starting a turn needs of the engine. */
export type StartServices = Pick<
  Engine,
  | 'config'
  | 'catalog'
  | 'blobs'
  | 'logs'
  | 'turnIndex'
  | 'commands'
  | 'agentCheck'
  | 'answerCheck'
  | 'editCheck'
  | 'placeFiles'
  | 'log'
  | 'metrics'
>;

/** The turn of a request, as the index has it. */
export interface RequestedTurn {
  id: string;
  session_id: string;
  created_at: string;
}

export interface TurnToStart {
  session: SessionRow;
  caller: Caller;
  previous: PreviousTurn;
  /** Undefined: as configured in the agent. */
  onRunning: OnRunning | undefined;
  claim: RequestClaim;
  /** The agent that the turn runs with: see `runnableAgent`. */
  agent: Promise<RunnableAgent>;
  /**
   * The input, with its files inline. Called once, before anything is written.
   * @throws EngineError `file_unavailable`
   */
  loadInput: () => Promise<InputItem[]>;
  /** The conversation before the turn, a `GivenConversation` as JSON, if its client keeps it. */
  conversation?: GivenText | undefined;
  /** The secrets for the MCP servers of a run of the Runs API: see `RunSecrets`. */
  secrets?: string | undefined;
  /** See `TurnBounds`. */
  rounds?: number | undefined;
  speculation: Speculation | undefined;
  /** Called before the turn is requested, which it may do itself. @throws EngineError that rejects the turn */
  admit?: ((turn: RequestedTurn) => Promise<void>) | undefined;
  /** Called when the turn is in the index. */
  onIndexed: () => void;
}

/** A conversation that is not stored yet: see `ConversationRef`. */
interface GivenText extends Pick<ConversationRef, 'repaired'> {
  json: string;
}

export interface StartedTurn {
  /** The first record of its log; undefined if the turn waits in the queue of its session. */
  created: TurnCreated | undefined;
  /** Settles when the turn is in the index. Never rejects. */
  indexed: Promise<void>;
}

/**
 * Starts a turn that was claimed; a repetition of the call starts it once. A rejected request is withdrawn from the
 * index, and its claim is released.
 * @throws EngineError
 */
export async function startTurn(engine: StartServices, turn: TurnToStart): Promise<StartedTurn> {
  const { catalog, blobs, commands, turnIndex, log } = engine;
  const { session, claim, speculation } = turn;
  const { resourceId: turnId } = claim;
  const sessionId = session.id;
  try {
    const agent = await turn.agent;
    const { previous, caller } = turn;
    const owner = ownerOf(session, caller);
    const loaded = await checkAnswers(engine, { session, owner, previous, input: await turn.loadInput() });
    const createdAt = createdAtOf(turnId);
    // Written before the command is sent, so that housekeeping finds the turn after a crash in between. Written before
    // the input is stored, because the blobs of a request are not collected, and a deleted session accepts none.
    const requested = { id: turnId, session_id: sessionId, created_at: createdAt };
    await turn.admit?.(requested);
    const isRequested = await catalog.turns.request(requested, turn.secrets);
    if (!isRequested) throw sessionNotFound(sessionId);
    turn.onIndexed();
    // Before the turn is accepted, since its first call may need the files. A rejected turn leaves them: another turn,
    // which may be its repetition, uses the same file for the same content.
    const paths = await engine.placeFiles(inputFiles(loaded), { sessionId, spec: agent.spec });
    const input = withPaths(await storeInput(loaded, { blobs, sessionId }), paths);
    const conversation = turn.conversation && (await storeConversation(turn.conversation, { blobs, sessionId }));
    const command = {
      ...(await commandOf(engine, turn, { agent, input, createdAt })),
      ...(conversation && { conversation }),
    };
    speculation?.offer(command.input);
    const accepted = await commands.createTurn(sessionId, command);
    engine.logs.accepted(turnId);
    const isQueued = 'queued' in accepted;
    if (isQueued) speculation?.withdraw();
    else speculation?.accepted(accepted);
    // A repetition that found no turn may send its command after the first request's, and is not counted.
    if (claim.isNew) engine.metrics.turnsStarted.inc();
    const position = isQueued ? { ...accepted, previousTurnId: null, sequence: 0 } : accepted;
    const start = { ...command, ...position, sessionId };
    // A commit to SQLite blocks the process: it waits until the response has begun to be sent. The turn is running, so
    // an index error, or a crash before this, does not change the response: reading and archiving repair the index.
    const indexed = sleep(1)
      .then(() => turnIndex.accept(start))
      .then(
        () => undefined,
        (error: unknown) => log.error({ turnId, err: error }, 'a turn was not indexed'),
      );
    return { created: isQueued ? undefined : turnCreated({ ...start, input }), indexed };
  } catch (error) {
    speculation?.withdraw();
    // An expired command is never carried out: the client's next request with the same key is a new turn.
    const isExpired = error instanceof EngineError && error.code === 'request_expired';
    // The rejection of a repetition does not release the claim: the first request may still be in progress.
    if ((claim.isNew || isExpired) && isRejected(error)) {
      await catalog.turns.withdraw(turnId);
      await claim.release();
    }
    throw error;
  }
}

async function storeConversation(
  { json, repaired }: GivenText,
  { blobs, sessionId }: BlobTarget,
): Promise<ConversationRef> {
  return { blob: await blobs.put(sessionId, Buffer.from(json)), ...(repaired && { repaired }) };
}

export interface RunnableAgent {
  spec: AgentSpec;
  /** See `pinnedAgents`. */
  agents: Record<string, string> | undefined;
}

/** The agent of a session, if a turn can run with it now. @throws EngineError */
export async function runnableAgent(
  { catalog, agentCheck }: Pick<StartServices, 'catalog' | 'agentCheck'>,
  session: AgentSession,
  caller: Caller,
): Promise<RunnableAgent> {
  if (session.closed) throw new EngineError('session_closed', 'the session is closed');
  const spec = await catalog.agents.spec(session.spec_hash);
  const owner = ownerOf(session, caller);
  await checkAgent(spec, { owner, agentCheck, path: 'agent.' });
  const notReady = await agentCheck.notReady(spec);
  if (notReady !== undefined) throw new EngineError('unavailable', notReady);
  const { type, agent_name: name, agent_version: version } = session;
  if (type === 'session' && name && version) await agentCheck.logWarnings({ name, version, spec });
  return { spec, agents: await pinnedAgents(spec, { catalog, agentCheck, owner }) };
}

/** What determines with which agent a session runs, and with whose rights. */
type AgentSession = Pick<SessionRow, 'spec_hash' | 'subject_id' | 'type' | 'draft_roles' | 'closed'> &
  Partial<Pick<SessionRow, 'agent_name' | 'agent_version'>>;

const storedRoles = z.array(z.string());

/** What a request does while another turn runs, which the agent decides by default. */
export function onRunningOf(requested: OnRunning | undefined, { config }: AgentSpec): OnRunning {
  return requested ?? config?.on_running ?? 'cancel';
}

/** The session's owner. If the caller is not the owner, the owner's roles are those stored with the draft. */
export function ownerOf(
  session: Pick<AgentSession, 'subject_id' | 'type' | 'draft_roles'>,
  caller: Caller,
): SessionOwner {
  const { subject_id: subjectId, type, draft_roles: stored } = session;
  if (type === 'session' || (isOfRun(session) && stored === null)) return { subjectId, draftRoles: null };
  return {
    subjectId,
    draftRoles: isOwn(caller, session) ? caller.roles : storedRoles.parse(JSON.parse(stored ?? '[]')),
  };
}

/** A turn's time of creation. It derives from the id, because a repeated command must be identical. */
export function createdAtOf(turnId: string): string {
  return new Date(timeOf(turnId)).toISOString();
}

async function commandOf(
  { blobs, config }: Pick<StartServices, 'blobs' | 'config'>,
  { session, caller, previous, onRunning: requested, claim, rounds }: TurnToStart,
  { agent, input, createdAt }: { agent: RunnableAgent; input: InputItem[]; createdAt: string },
): Promise<CreateTurnCommand> {
  const { spec, agents } = agent;
  const onRunning = onRunningOf(requested, spec);
  const budget = budgetOf(spec.config?.budget);
  const actions = codeActionsOf(spec);
  const answerAfterSeconds = spec.config?.answer_after_seconds ?? undefined;
  return {
    turnId: claim.resourceId,
    createdAt,
    createdBy: caller.subject,
    owner: ownerOf(session, caller),
    input: await offloadItems(input, { blobs, sessionId: session.id, maxBytes: MAX_INPUT_BYTES, inlineBytesOf }),
    title: titleOf(input),
    previous,
    ...(session.type === 'run' && { isRun: true }),
    ...(!mayOnSession(caller, session, 'cancel') && { sparesRunning: true }),
    ...(onRunning !== 'cancel' && { onRunning: onRunning === 'steer' ? 'reject' : onRunning }),
    specHash: session.spec_hash,
    ...(agents && { agents }),
    hasServers: hasServers(spec),
    ...(spec.config?.pause === 'wait' && { pause: 'wait' }),
    ...(spec.config?.on_unknown === 'ask' && { onUnknown: 'ask' }),
    ...(spec.failsWithTools && { failsWithTools: true }),
    ...(actions?.endsOnDenial && { endsOnDenial: true }),
    ...(spec.callsInSequence && { callsInSequence: true }),
    ...(budget && { budget }),
    limits: {
      iterations: iterationLimit(spec),
      ...(answersAtLimit(spec) && { answersAtIterations: true }),
      ...(rounds !== undefined && { rounds }),
      ...(answerAfterSeconds !== undefined && { answerAfterSeconds }),
      ...(spec.actionSeconds !== undefined && { actionSeconds: spec.actionSeconds }),
      seconds: Math.min(spec.turnSeconds ?? Infinity, config.turnSeconds),
      toolSeconds: config.tool.timeoutSeconds,
      toolHeartbeatSeconds: config.tool.heartbeatSeconds,
      subAgents: config.subAgents,
      ...(actions && { tasks: actions.sub_tasks.max_concurrent }),
    },
  };
}
