import type { Request, Response } from 'express';
import type { Caller } from '../../core/subject.ts';
import { readerOf, type Reader } from '../../auth/rights.ts';
import { BEGINNING } from '../../core/cursor.ts';
import { isId } from '../../core/ids.ts';
import { authorizeSession } from '../../engine/access.ts';
import { waitingOn } from '../../engine/check-answers.ts';
import { EngineError } from '../../engine/errors.ts';
import type { PreviousTurn } from '../../engine/start-turn.ts';
import { TurnRequest, type ClaimedTurn } from '../../engine/turn-request.ts';
import { hashOf } from '../../lib/hash.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { EventStream } from '../http/event-stream.ts';
import { secondsSinceStart } from '../http/request-log.ts';
import { sendWhole } from '../http/send-whole.ts';
import { readFiles } from '../http/sent-files.ts';
import { streamTurn } from '../http/turn-stream.ts';
import { SESSION_ERRORS } from './errors.ts';
import { remembering } from './remembering.ts';
import { checkInput, filesOf, isDecision, rulesIn, toInputItems } from './turn-input.ts';
import { TurnEventReader } from './turn-event-reader.ts';
import { turnResourceOf } from './turn-resource.ts';
import type { CreateTurnBody } from './wire/input.ts';
import type { TurnResource } from './wire/resources.ts';
import type { View } from './wire/view.ts';
import { toTurnResource } from './wire/resources-to-wire.ts';

interface CreateTurnCall {
  sessionId: string;
  /** `Idempotency-Key`. */
  key: string | undefined;
  body: CreateTurnBody;
  view: View;
  caller: Caller;
  rateLimitError?: ApiError | undefined;
  request: Request;
  response: Response;
}

/** The response, and the start of the turn that it contains. */
interface StartResponse {
  response: Response;
  reader: Reader;
  start: () => ReturnType<ClaimedTurn['start']>;
}

/** Starts a turn, and sends its stream or the turn. @throws ApiError or EngineError before a response is sent */
export async function respondWithTurn(context: ApiContext, call: CreateTurnCall): Promise<void> {
  try {
    await startFrom(context, call);
  } catch (error) {
    if (!(error instanceof EngineError) || error.code !== 'call_not_pending') throw error;
    const message = `${error.message}; POST /v1/agents/sessions/${call.sessionId}/actions answers the calls of a running turn`;
    throw new ApiError('call_not_pending', message, { param: error.param, cause: error });
  }
}

async function startFrom(context: ApiContext, call: CreateTurnCall): Promise<void> {
  const { sessionId, key, body, view, caller, rateLimitError, request, response } = call;
  const items = body.input ?? [];
  const previous = previousOf(body.previous_turn_id);
  const answersCalls = items.some(({ type }) => type !== 'user.message');
  using turnRequest = new TurnRequest(context, {
    sessionId,
    caller,
    key,
    bodyHash: hashOf(body),
    previous,
    onRunning: body.on_running ?? undefined,
    answersCalls,
  });
  const session = await authorizeSession(context.catalog, sessionId, caller, isDecision(items) ? 'decide' : 'send');
  const reader = readerOf(caller, session);
  checkInput(items);
  const isMessages = items.length > 0 && !answersCalls;
  if (body.on_running === 'steer' && !isMessages) throw messagesRequired();
  checkPrevious(previous);
  const files = filesOf(items);
  const host = request.get('host');
  const loadInput = async () => toInputItems(items, await readFiles(files, { ...context, caller, host }));
  const input = files.length > 0 ? loadInput : toInputItems(items, []);
  await using turn = await turnRequest.claim({ session, input, rateLimitError });
  const steered = isMessages ? await turn.steer() : undefined;
  if (steered !== undefined) {
    const running = await context.logs.firstAndLast(steered);
    await returnTurn(turn, await turnResourceOf(context.client, running, reader), response);
    return;
  }
  const rules = rulesIn(items);
  const waiting = () => waitingOn(context, session, previous);
  const rounds = body.max_turns ?? undefined;
  const start = () =>
    remembering(context, { session, caller, rules, waiting }, (admit) => turn.start({ admit, rounds }));
  // The field decides, not `Accept`: the Python SDK always sends `*/*`.
  if (body.stream === false) await startAndReturn(context, turn, { response, reader, start });
  else await startAndStream(context, turn, { response, view, reader, start });
}

async function startAndStream(
  context: ApiContext,
  turn: ClaimedTurn,
  { response, view, reader, start }: StartResponse & Pick<CreateTurnCall, 'view'>,
): Promise<void> {
  const { tails, metrics } = context;
  const { turnId } = turn;
  // Subscribes before the turn starts, so that its first deltas are not missed.
  const lease = tails.lease(turnId);
  const stream = new EventStream(response, metrics);
  stream.onDelivered(() => turn.acknowledge());
  try {
    const started = await start();
    const created = started?.created;
    if (started && !created) await turn.whenIndexed();
    // The first delta of a turn that an earlier request started does not measure this request.
    const onFirstDelta = created ? () => metrics.firstDelta.observe(secondsSinceStart(response)) : undefined;
    const events = new TurnEventReader({ cursor: BEGINNING, stream, view, reader, onFirstDelta });
    await streamTurn({ context, turnId, reader: events, lease, created });
  } finally {
    lease.release();
  }
}

async function startAndReturn(
  { client, logs }: ApiContext,
  turn: ClaimedTurn,
  { response, reader, start }: StartResponse,
): Promise<void> {
  const started = await start();
  await turn.whenIndexed();
  const created = started?.created;
  const data = created
    ? toTurnResource({ created, done: undefined }, reader)
    : await turnResourceOf(client, await logs.firstAndLast(turn.turnId), reader);
  await returnTurn(turn, data, response);
}

async function returnTurn(claimed: ClaimedTurn, data: TurnResource, response: Response): Promise<void> {
  if (await sendWhole(response, () => response.json({ data }))) claimed.acknowledge();
}

function messagesRequired(): ApiError {
  return new ApiError(SESSION_ERRORS.messages_required, 'with on_running: "steer" the input must be user messages', {
    param: 'input',
  });
}

function previousOf(id: string | null | undefined): PreviousTurn {
  if (id === undefined || id === null || id === 'auto') return { turn: 'last' };
  if (id === 'none' || id === 'null') return { turn: 'none' };
  return { turn: 'id', turnId: id };
}

/** @throws ApiError `turn_not_found` for an id that no turn has */
function checkPrevious(previous: PreviousTurn): void {
  if (previous.turn !== 'id' || isId(previous.turnId)) return;
  throw new ApiError('turn_not_found', 'previous_turn_id must be the id of a turn of this session, auto or none', {
    param: 'previous_turn_id',
  });
}
