import type { Caller } from '../../core/subject.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import type { RequestInput } from '../../features/agent-sessions/session-inputs.ts';
import { controlTurn } from '../../engine/control-turn.ts';
import { EngineError } from '../../engine/errors.ts';
import { TurnRequest } from '../../engine/turn-request.ts';
import { hashOf } from '../../lib/hash.ts';
import type { ApiContext } from '../http/context.ts';
import { inputOf } from './message-input.ts';
import { requireBudget } from './token-budget.ts';
import type { UserMessage } from './wire/messages.ts';

interface SentMessages {
  /** From `authorizeSession`: the caller may send messages to it. */
  session: SessionRow;
  caller: Caller;
  messages: UserMessage[];
  /** Names the request, so that it is carried out once; undefined: equal requests within seconds are one. */
  key: string | undefined;
  /** Rejects a request that is no repetition. */
  rateLimitError: Error | undefined;
  /** This server's name in the request. */
  host: string | undefined;
  /** Sends the response. False if the response is lost: an equal request within seconds is then a repetition. */
  respond: () => Promise<boolean>;
}

/**
 * Sends messages to the running turn of a session, which resumes if it was paused, or starts a turn; then responds. At
 * that time the session has the messages, and every read shows that it works.
 * @throws ApiError or EngineError
 */
export async function sendMessages(context: ApiContext, sent: SentMessages): Promise<void> {
  const { session, caller, messages, key, rateLimitError, host, respond } = sent;
  using request = new TurnRequest(context, {
    sessionId: session.id,
    caller,
    key,
    bodyHash: hashOf(messages),
    previous: { turn: 'last' },
    onRunning: 'steer',
    answersCalls: false,
  });
  const input = inputOf(messages, { ...context, caller, host });
  const isWaiting = await waitsToBegin(context, session.id);
  await using turn = await request.claim({ session, input, rateLimitError, isWaiting });
  const isKept = await turn.keep(async (requestId, loadInput) => {
    if (!isWaiting) return context.catalog.sessionSlots.hasInput(session.id, requestId);
    return keepUntilBegun(context, session, { requestId, input: await loadInput() });
  });
  const isSteered = !isKept && (await turn.steer()) !== undefined;
  if (isSteered) await resume(context, { session, caller });
  else if (!isKept) {
    await turn.start({
      admit: async (requested) => {
        await requireBudget(context, session.subject_id);
        await context.sessionQueue.admit(requested);
      },
    });
    await turn.whenIndexed();
  }
  if (await respond()) turn.acknowledge();
}

/** Resumes the running turn, whether its pause is in the log or takes effect after its current work. */
async function resume(context: ApiContext, turn: Pick<SentMessages, 'session' | 'caller'>): Promise<void> {
  try {
    await controlTurn(context, { ...turn, type: 'resume' });
  } catch (error) {
    // The turn has ended, or stays paused for its budget: it contains the messages in either case.
    if (!(error instanceof EngineError) || !['nothing_running', 'budget_exceeded'].includes(error.code)) throw error;
  }
}

/** Whether a session has not begun: it waits in the queue, or was cancelled or rejected before its first turn. */
async function waitsToBegin({ catalog, sessionQueue }: ApiContext, sessionId: string): Promise<boolean> {
  if (await catalog.turns.last(sessionId)) return false;
  const request = await catalog.sessionRequests.get(sessionId);
  if (!request) return false;
  await sessionQueue.start(sessionId);
  const wasStopped = request.cancelled_at !== null || request.start_error !== null;
  return request.queue_number !== null || (request.first_turn_id === null && wasStopped);
}

/**
 * Adds messages to a session that has not begun: a queued session keeps them until it begins, and a session that was
 * never started begins now. Returns false, without an effect, if it has begun. A repetition has no effect.
 * @throws ApiError or EngineError
 */
async function keepUntilBegun(
  context: ApiContext,
  { id, subject_id: subject }: SessionRow,
  request: RequestInput,
): Promise<boolean> {
  const { sessionQueue } = context;
  if (await sessionQueue.buffer(id, request)) return true;
  await requireBudget(context, subject);
  if (await sessionQueue.revive(id, request)) return true;
  // The session was admitted while the files were read: its task comes before these messages.
  await sessionQueue.start(id);
  return false;
}
