import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { MAX_PAYLOAD_BYTES, offload } from '../blobs/offload.ts';
import { isOwn, mayOnSession } from '../auth/rights.ts';
import type { Caller } from '../core/subject.ts';
import type { SessionRow, TurnRow } from '../catalog/schema.ts';
import { hashOf } from '../lib/hash.ts';
import type { SessionOwner, TurnStart } from '../core/history.ts';
import { timeOf, isId } from '../core/ids.ts';
import { newId } from './new-id.ts';
import { turnCreated } from '../core/projection.ts';
import type { InputItem, TurnCreated } from '../core/records.ts';
import { titleOf } from '../core/input-rules.ts';
import { addLogContext } from '../telemetry/log-context.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { CreateTurnBody } from '../api/sessions/wire/input.ts';
import type { CreateTurnCommand } from '../core/session.ts';
import { checkAgent } from '../api/sessions/agents.ts';
import type { ApiContext } from '../api/http/context.ts';
import { ApiError, isRefusal } from '../api/http/errors.ts';
import { readFiles } from '../api/sessions/input-files.ts';
import { claimRequest, isClaimed, type RequestClaim } from './request-claims.ts';
import { hasTurn, isTurnOf } from '../api/sessions/access.ts';
import { authorize, authorizeSession, sessionNotFound } from '../api/sessions/sessions.ts';
import { beginsWithModel, type TurnSpeculation } from '../speculation/turn-speculation.ts';
import { checkInput, filesOf, isDecision, toInputItems } from '../api/sessions/turn-input.ts';

/** What the input of a turn may take in Temporal; the rest of the payload is for the turn itself. */
const MAX_INPUT_BYTES = MAX_PAYLOAD_BYTES - 32 * 1024;

/** Characters of the log before a turn that go along with its speculative call: more would take as long as finding it. */
const MAX_SENT_LOG = 64 * 1024;

export interface TurnRequest {
  turnId: string;
  /** Whether the client wants the stream, or only the turn. */
  stream: boolean;
  /** Starts the turn and gives its beginning; undefined if this request has done so before. @throws ApiError */
  start: () => Promise<TurnCreated | undefined>;
  /** The answer has reached the client, as far as one can know. */
  delivered: () => void;
  /** The request is over: if its answer was not delivered, it may come again. */
  over: () => Promise<void>;
}

interface SentTurn {
  /** `Idempotency-Key`. */
  key: string | undefined;
  body: CreateTurnBody;
  /** What the client calls this server. */
  host: string | undefined;
  sessionId: string;
  caller: Caller;
  /** Why it is one request too many, if it is. */
  tooMany: ApiError | undefined;
}

/**
 * Reads a request for a turn, and finds out whether it came before: then it stands for the same turn. As soon as it is
 * known to be valid its model may begin, before anything of the turn is written.
 * @throws ApiError before anything is written
 */
export async function readTurnRequest(context: ApiContext, sent: SentTurn): Promise<TurnRequest> {
  const { sessionId, caller, body } = sent;
  const scope = `${caller.subject.subjectId}/turns/${sessionId}`;
  const speculativeCall = beginsWithModel(body.input ?? []) ? context.speculativeCalls.prepare(scope) : undefined;
  try {
    return await claimTurn(context, { ...sent, scope, speculativeCall });
  } catch (error) {
    speculativeCall?.withdraw();
    throw error;
  }
}

interface TurnToClaim extends SentTurn {
  /** Of the request's repetitions. */
  scope: string;
  speculativeCall: TurnSpeculation | undefined;
}

async function claimTurn(
  context: ApiContext,
  { sessionId, key, body, host, caller, tooMany, scope, speculativeCall }: TurnToClaim,
): Promise<TurnRequest> {
  const { catalog } = context;
  const items = body.input ?? [];
  const wanted = { catalog, scope, key, bodyHash: hashOf(body), sessionId };
  // Beside the check of the caller's rights only the index is read: no conversation, and nothing leaves the server.
  const [session, foreseen] = await Promise.all([
    authorizeSession(catalog, sessionId, caller, 'read'),
    speculativeCall && foresee(context, { wanted, sessionId, previousId: body.previous_turn_id }),
  ]);
  authorize(caller, session, isDecision(items) ? 'decide' : 'send');
  checkInput(items);
  const previous = previousOf(body.previous_turn_id);
  const leave = await enter(context, { session, tooMany, isRepeat: () => isClaimed(wanted) });
  const resourceId = newId('turn');
  const spec = runnableSpec(context, session, caller);
  if (foreseen) speculativeCall?.foresee(beginningOf(context, { turnId: resourceId, session, caller, ...foreseen }));
  const beginEarly = async (): Promise<void> => {
    await spec;
    // What has to be stored first begins when it is.
    if (!speculativeCall || !isSmallText(items)) return;
    speculativeCall.give(await toInputItems(items, { ...context, contents: [], sessionId }));
    // Commits to SQLite hold up the whole process: the model's request goes out before them.
    await sleep(1);
  };
  // Whoever starts the turn is told what is wrong with it.
  await beginEarly().catch(() => undefined);
  if (!speculativeCall) await context.speculativeCalls.othersClaimed(scope);
  const claim = await claimRequest({ ...wanted, resourceId }).catch((error: unknown) => {
    leave();
    throw error;
  });
  speculativeCall?.claimed();
  if (!claim.isNew) speculativeCall?.withdraw();
  const turnId = claim.resourceId;
  addLogContext({ turnId });
  // The same body within the next seconds may be taken for a repetition when it is not, or the other way round.
  const warn = (error: unknown) => context.log.warn({ turnId, err: error }, 'the answer to a turn could not be noted');
  let isDelivered = false;
  return {
    turnId,
    stream: body.stream !== false,
    start: async () => {
      // Whatever has changed since, what was begun is answered.
      if (!claim.isNew && (await hasTurn(context, session, turnId))) return undefined;
      return startTurn(context, { session, caller, body, host, previous, claim, spec, speculativeCall, leave });
    },
    delivered: () => {
      isDelivered = true;
      claim.delivered().catch(warn);
    },
    over: async () => {
      speculativeCall?.withdraw();
      leave();
      if (!isDelivered) await claim.lost().catch(warn);
    },
  };
}

/**
 * Lets a turn in, if there is room. One that came before was let in then: whoever repeats a request must not be told that
 * it was not carried out.
 * @throws ApiError `rate_limited` or `too_many_turns`
 */
async function enter(
  { turnLimits }: ApiContext,
  { session, tooMany, isRepeat }: Pick<SentTurn, 'tooMany'> & { session: SessionRow; isRepeat: () => Promise<boolean> },
): Promise<() => void> {
  try {
    if (tooMany) throw tooMany;
    return await turnLimits.admit(session);
  } catch (error) {
    if (await isRepeat()) return () => undefined;
    throw error;
  }
}

interface Foreseen {
  /** The newest turn of the session. */
  last: TurnRow | undefined;
  /** The turn that the new one will follow. */
  previousTurnId: string | null;
}

interface RequestToForesee {
  wanted: Parameters<typeof isClaimed>[0];
  sessionId: string;
  previousId: CreateTurnBody['previous_turn_id'];
}

/**
 * What a turn will follow, as far as the index knows before its session is asked. Undefined if the request may have come
 * before, or names a turn that the index does not have in this session: it may be that of another subject.
 */
async function foresee(
  { catalog, log }: ApiContext,
  { wanted, sessionId, previousId }: RequestToForesee,
): Promise<Foreseen | undefined> {
  try {
    const previous = previousOf(previousId);
    const [isRepeat, last, named] = await Promise.all([
      isClaimed(wanted),
      catalog.turns.last(sessionId),
      previous.turn === 'id' ? catalog.turns.get(previous.turnId) : undefined,
    ]);
    if (isRepeat) return undefined;
    if (previous.turn === 'last') return { last, previousTurnId: last?.id ?? null };
    if (previous.turn === 'none') return { last, previousTurnId: null };
    return isTurnOf({ id: sessionId }, named) ? { last, previousTurnId: previous.turnId } : undefined;
  } catch (error) {
    log.debug({ sessionId, err: error }, 'a turn gets no speculative call');
    return undefined;
  }
}

interface TurnToForesee extends Foreseen, Pick<TurnToStart, 'session' | 'caller'> {
  turnId: string;
}

function beginningOf(
  { logs }: ApiContext,
  { turnId, session, caller, previousTurnId, last }: TurnToForesee,
): Parameters<TurnSpeculation['foresee']>[0] {
  const afterLog = last && logs.peekEnded(last.id, MAX_SENT_LOG);
  return {
    turnId,
    sessionId: session.id,
    sequence: (last?.sequence ?? 0) + 1,
    previousTurnId,
    after: last?.id ?? null,
    ...(afterLog && { afterLog }),
    createdAt: createdAtOf(turnId),
    createdBy: caller.subject,
    owner: ownerOf(session, caller),
    specHash: session.spec_hash,
  };
}

const storedRoles = z.array(z.string());

/** The roles of an owner who is not the caller are those that it had when it wrote the draft. */
function ownerOf(session: SessionRow, caller: Caller): SessionOwner {
  const { subject_id: subjectId, type, draft_roles: stored } = session;
  if (type === 'session') return { subjectId, draftRoles: null };
  return {
    subjectId,
    draftRoles: isOwn(caller, session) ? caller.roles : storedRoles.parse(JSON.parse(stored ?? '[]')),
  };
}

/** The agent of a session, if a turn can run with it now. @throws ApiError */
async function runnableSpec(
  { catalog, agentCheck }: ApiContext,
  session: SessionRow,
  caller: Caller,
): Promise<AgentSpec> {
  if (session.closed) throw new ApiError('session_closed', 'the session is closed');
  const spec = await catalog.agents.spec(session.spec_hash);
  await checkAgent(spec, ownerOf(session, caller), agentCheck, 'agent.');
  return spec;
}

/** Whether nothing of an input has to be stored beside its turn. */
function isSmallText(items: NonNullable<CreateTurnBody['input']>): boolean {
  return filesOf(items).length === 0 && Buffer.byteLength(JSON.stringify(items)) <= MAX_INPUT_BYTES;
}

/** The same each time that the request comes: see `CreateTurnCommand`. */
function createdAtOf(turnId: string): string {
  return new Date(timeOf(turnId)).toISOString();
}

interface TurnToStart extends Omit<SentTurn, 'key' | 'sessionId' | 'tooMany'> {
  session: SessionRow;
  previous: CreateTurnCommand['previous'];
  claim: RequestClaim;
  spec: Promise<AgentSpec>;
  speculativeCall: TurnSpeculation | undefined;
  /** The turn is in the index. */
  leave: () => void;
}

async function startTurn(context: ApiContext, turn: TurnToStart): Promise<TurnCreated> {
  const { catalog, blobs, commands, turnIndex, log } = context;
  const { session, caller, body, host, claim, speculativeCall } = turn;
  const items = body.input ?? [];
  const { resourceId: turnId } = claim;
  const sessionId = session.id;
  try {
    const spec = await turn.spec;
    const files = filesOf(items).map(({ file }) => file);
    const contents = await readFiles(files, { ...context, caller, host });
    const createdAt = createdAtOf(turnId);
    // Before the session is asked: after a crash in between, this is the trace of the turn. And before anything is stored
    // for it: what belongs to a request is not collected, and a session that is deleted meanwhile gets nothing more.
    const isNoted = await catalog.turns.request({ id: turnId, session_id: sessionId, created_at: createdAt });
    if (!isNoted) throw sessionNotFound(sessionId);
    turn.leave();
    const input = await toInputItems(items, { contents, blobs, sessionId });
    const command = await commandOf(context, { ...turn, agent: spec, input, createdAt });
    speculativeCall?.give(command.input);
    const { previousTurnId, sequence } = await commands.createTurn(sessionId, command);
    speculativeCall?.close();
    // A repetition that found no turn may still have met it at its session.
    if (claim.isNew) context.metrics.turnsStarted.inc();
    const start: TurnStart = { ...command, sessionId, previousTurnId, sequence, resumes: [] };
    // The turn runs: whatever is wrong with the index now, the answer is a success, and the archive will mend it.
    await turnIndex
      .accept(start)
      .catch((error: unknown) => log.error({ turnId, err: error }, 'a turn was not indexed'));
    return turnCreated({ ...start, input });
  } catch (error) {
    speculativeCall?.withdraw();
    // What is too late will not be carried out: sent again under its key it is another turn.
    const isLate = error instanceof ApiError && error.code === 'request_expired';
    // A repetition may be refused while the first is still on its way.
    if ((claim.isNew || isLate) && isRefusal(error)) {
      await catalog.turns.withdraw(turnId);
      await claim.release();
    }
    throw error;
  }
}

interface CommandParts {
  agent: AgentSpec;
  input: InputItem[];
  createdAt: string;
}

async function commandOf(
  { blobs, config }: ApiContext,
  { session, caller, previous, claim, agent, input, createdAt }: TurnToStart & CommandParts,
): Promise<CreateTurnCommand> {
  return {
    turnId: claim.resourceId,
    createdAt,
    createdBy: caller.subject,
    owner: ownerOf(session, caller),
    input: await offload(input, { blobs, sessionId: session.id, maxBytes: MAX_INPUT_BYTES }),
    title: titleOf(input),
    previous,
    ...(!mayOnSession(caller, session, 'cancel') && { sparesRunning: true }),
    specHash: session.spec_hash,
    hasServers: (agent.mcp_servers ?? []).length > 0,
    limits: {
      iterations: agent.config?.iteration_limit ?? 100,
      seconds: config.turnSeconds,
      toolSeconds: config.tool.timeoutSeconds,
      toolHeartbeatSeconds: config.tool.heartbeatSeconds,
    },
  };
}

/** @throws ApiError `turn_not_found` for what can't be a turn */
function previousOf(id: string | null | undefined): CreateTurnCommand['previous'] {
  if (id === undefined || id === null || id === 'auto') return { turn: 'last' };
  if (id === 'none' || id === 'null') return { turn: 'none' };
  if (isId(id)) return { turn: 'id', turnId: id };
  throw new ApiError('turn_not_found', 'previous_turn_id must be the id of a turn of this session, auto or none', {
    param: 'previous_turn_id',
  });
}
