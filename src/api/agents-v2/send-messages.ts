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
  /** Answers the request. False if the answer is lost: an equal request within seconds is then a repetition. */
  answer: () => Promise<boolean>;
}

/**
 * Gives messages to the running turn of a session, which resumes if it was paused, or starts one, and answers. When it
 * answers, the session has them, and every reader finds that it works.
 * @throws ApiError or EngineError
 */
export async function sendMessages(context: ApiContext, sent: SentMessages): Promise<void> {
  const { session, caller, messages, key, rateLimitError, host, answer } = sent;
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
  if (await answer()) turn.acknowledge();
}

/** Resumes the running turn, whether its pause is in the log or takes effect after what it is doing. */
async function resume(context: ApiContext, turn: Pick<SentMessages, 'session' | 'caller'>): Promise<void> {
  try {
    await controlTurn(context, { ...turn, type: 'resume' });
  } catch (error) {
    // It has ended, or stays paused for its budget: the messages are part of it nevertheless.
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
 * Gives messages to a session that has not begun: one that waits in the queue keeps them until it begins, and one that was
 * never started begins now. False, and without effect, if it has begun. A repetition has no effect.
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
  // It was admitted while the files were read: its task comes before these messages.
  await sessionQueue.start(id);
  return false;
}
