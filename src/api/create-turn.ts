import { MAX_PAYLOAD_BYTES, offload } from '../blobs/offload.ts';
import type { Caller } from '../auth/rights.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { hashOf } from '../hash.ts';
import type { TurnStart } from '../log/history.ts';
import { newId, timeOf } from '../log/ids.ts';
import { turnCreated } from '../log/projection.ts';
import type { InputItem, TurnCreated } from '../log/records.ts';
import { titleOf } from '../log/title.ts';
import { addToLogScope } from '../telemetry/log-scope.ts';
import type { AgentSpec } from '../wire/agent-spec.ts';
import type { CreateTurnBody } from '../wire/input.ts';
import type { CreateTurnCommand } from '../../workflows/messages.ts';
import { checkAgent } from './agents.ts';
import type { ApiContext } from './context.ts';
import { ApiError, isRefusal } from './errors.ts';
import { readFiles } from './file-sources.ts';
import { giveHeadStart } from './give-head-start.ts';
import { claimRequest, isClaimed, type RequestClaim } from './idempotency.ts';
import { isId } from './ids.ts';
import { hasTurn } from './own-turn.ts';
import { checkRight, sessionNotFound } from './sessions.ts';
import { checkInput, filesOf, isDecision, keepInput } from './turn-input.ts';

/** What the input of a turn may take in Temporal; the rest of the payload is for the turn itself. */
const MAX_INPUT_BYTES = MAX_PAYLOAD_BYTES - 32 * 1024;

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
  session: SessionRow;
  caller: Caller;
  /** Why it is one request too many, if it is. */
  tooMany: ApiError | undefined;
}

/**
 * Reads a request for a turn, and finds out whether it came before: then it stands for the same turn.
 * @throws ApiError before anything is written
 */
export async function readTurnRequest(
  context: ApiContext,
  { key, body, host, session, caller, tooMany }: SentTurn,
): Promise<TurnRequest> {
  const items = body.input ?? [];
  checkRight(caller, session, isDecision(items) ? 'decide' : 'send');
  checkInput(items);
  const previous = previousOf(body.previous_turn_id);
  const { catalog } = context;
  const scope = `${caller.subject.subjectId}/turns/${session.id}`;
  const wanted = { catalog, scope, key, bodyHash: hashOf(body), sessionId: session.id };
  const leave = await enter(context, { session, tooMany, isRepeat: () => isClaimed(wanted) });
  const claim = await claimRequest({ ...wanted, resourceId: newId('turn') }).catch((error: unknown) => {
    leave();
    throw error;
  });
  const turnId = claim.resourceId;
  addToLogScope({ turnId });
  // The same body within the next seconds may be taken for a repetition when it is not, or the other way round.
  const warn = (error: unknown) => context.log.warn({ turnId, err: error }, 'the answer to a turn could not be noted');
  let isDelivered = false;
  return {
    turnId,
    stream: body.stream !== false,
    start: async () => {
      // Whatever has changed since, what was begun is answered.
      if (!claim.isNew && (await hasTurn(context, session, turnId))) return undefined;
      return startTurn(context, { session, caller, body, host, previous, claim, leave });
    },
    delivered: () => {
      isDelivered = true;
      claim.delivered().catch(warn);
    },
    over: async () => {
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
  { session, tooMany, isRepeat }: Pick<SentTurn, 'session' | 'tooMany'> & { isRepeat: () => Promise<boolean> },
): Promise<() => void> {
  try {
    if (tooMany) throw tooMany;
    return await turnLimits.admit(session);
  } catch (error) {
    if (await isRepeat()) return () => undefined;
    throw error;
  }
}

interface TurnToStart extends Omit<SentTurn, 'key' | 'tooMany'> {
  previous: CreateTurnCommand['previous'];
  claim: RequestClaim;
  /** The turn is in the index. */
  leave: () => void;
}

async function startTurn(context: ApiContext, turn: TurnToStart): Promise<TurnCreated> {
  const { catalog, blobs, commands, turnIndex, log } = context;
  const { session, caller, body, host, claim } = turn;
  const items = body.input ?? [];
  const { resourceId: turnId } = claim;
  const sessionId = session.id;
  const answered = new AbortController();
  try {
    if (session.closed) throw new ApiError('session_closed', 'the session is closed');
    const spec = await catalog.agents.spec(session.spec_hash);
    await checkAgent(spec, context.agentCheck, 'agent.');
    const files = filesOf(items).map(({ file }) => file);
    const contents = await readFiles(files, { ...context, caller, host });
    // The same each time that the request comes: see `CreateTurnCommand`.
    const createdAt = new Date(timeOf(turnId)).toISOString();
    // Before the session is asked: after a crash in between, this is the trace of the turn. And before anything is stored
    // for it: what belongs to a request is not collected, and a session that is deleted meanwhile gets nothing more.
    const isNoted = await catalog.turns.request({ id: turnId, session_id: sessionId, created_at: createdAt });
    if (!isNoted) throw sessionNotFound(sessionId);
    turn.leave();
    const input = await keepInput(items, { contents, blobs, sessionId });
    const command = await commandOf(context, { ...turn, spec, input, createdAt });
    if (claim.isNew) giveHeadStart(context, sessionId, command, answered.signal);
    const { previousTurnId, sequence } = await commands.createTurn(sessionId, command);
    // A repetition that found no turn may still have met it at its session.
    if (claim.isNew) context.metrics.turnsStarted.inc();
    const start: TurnStart = { ...command, sessionId, previousTurnId, sequence, resumes: [] };
    // The turn runs: whatever is wrong with the index now, the answer is a success, and the archive will mend it.
    await turnIndex
      .accept(start)
      .catch((error: unknown) => log.error({ turnId, err: error }, 'a turn was not indexed'));
    return turnCreated({ ...start, input });
  } catch (error) {
    answered.abort();
    // A repetition may be refused while the first is still on its way.
    if (claim.isNew) context.headStarts.withdraw(turnId);
    // What is too late will not be carried out: sent again under its key it is another turn.
    const isLate = error instanceof ApiError && error.code === 'request_expired';
    if ((claim.isNew || isLate) && isRefusal(error)) {
      await catalog.turns.withdraw(turnId);
      await claim.release();
    }
    throw error;
  } finally {
    answered.abort();
  }
}

interface CommandParts {
  spec: AgentSpec;
  input: InputItem[];
  createdAt: string;
}

async function commandOf(
  { blobs, config }: ApiContext,
  { session, caller, previous, claim, spec, input, createdAt }: TurnToStart & CommandParts,
): Promise<CreateTurnCommand> {
  return {
    turnId: claim.resourceId,
    createdAt,
    createdBy: caller.subject,
    input: await offload(input, { blobs, sessionId: session.id, maxBytes: MAX_INPUT_BYTES }),
    title: titleOf(input),
    previous,
    specHash: session.spec_hash,
    hasServers: (spec.mcp_servers ?? []).length > 0,
    limits: {
      iterations: spec.config?.iteration_limit ?? 100,
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
