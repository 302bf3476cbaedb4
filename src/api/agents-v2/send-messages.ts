import type { Config } from '../../config.ts';
import type { Caller } from '../../core/subject.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { controlTurn } from '../../engine/control-turn.ts';
import type { Engine } from '../../engine/engine.ts';
import { EngineError } from '../../engine/errors.ts';
import { TurnRequest } from '../../engine/turn-request.ts';
import { hashOf } from '../../lib/hash.ts';
import type { ApiContext } from '../http/context.ts';
import type { ApiError } from '../http/errors.ts';
import { inputOf, readInput } from './message-input.ts';
import { requireBudget } from './token-budget.ts';
import type { UserMessage } from './wire/messages.ts';

type MessageServices = Engine &
  Pick<ApiContext, 'allowPrivateUrls' | 'sessionQueue'> & { config: Pick<Config, 'subjectBudget'> };

interface SentMessages {
  /** From `authorizeSession`: the caller may send messages to it. */
  session: SessionRow;
  caller: Caller;
  messages: UserMessage[];
  /** Names the request, so that it is carried out once; undefined: equal requests within seconds are one. */
  key: string | undefined;
  rateLimitError: ApiError | undefined;
  /** This server's name in the request. */
  host: string | undefined;
}

/**
 * Gives messages to the running turn of a session, which resumes if it was paused, or starts one. When this returns, the
 * session has them, and every reader finds that it works.
 * @throws ApiError or EngineError
 */
export async function sendMessages(context: MessageServices, sent: SentMessages): Promise<void> {
  const { session, caller, messages, key, rateLimitError, host } = sent;
  if (await sendFirstMessages(context, sent)) return;
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
  await using turn = await request.claim({ session, input, rateLimitError });
  if ((await turn.steer()) === undefined) {
    await turn.start({
      admit: async (requested) => {
        await requireBudget(context, session.subject_id);
        await context.sessionQueue.admit(requested);
      },
    });
    await turn.whenIndexed();
  } else {
    await resume(context, { session, caller });
  }
  turn.acknowledge();
}

/** Resumes the running turn, whether its pause is in the log or takes effect after what it is doing. */
async function resume(context: MessageServices, turn: Pick<SentMessages, 'session' | 'caller'>): Promise<void> {
  try {
    await controlTurn(context, { ...turn, type: 'resume' });
  } catch (error) {
    // It has ended, or stays paused for its budget: the messages are part of it nevertheless.
    if (!(error instanceof EngineError) || !['nothing_running', 'budget_exceeded'].includes(error.code)) throw error;
  }
}

/**
 * Gives messages to a session that has not begun: one that waits in the queue keeps them until it begins, and one that was
 * never started begins now. False, and without effect, if it has begun.
 * @throws ApiError or EngineError
 */
async function sendFirstMessages(
  context: MessageServices,
  { session, caller, messages, rateLimitError, host }: Omit<SentMessages, 'key'>,
): Promise<boolean> {
  const { catalog, sessionQueue } = context;
  if (await catalog.turns.last(session.id)) return false;
  const request = await catalog.sessionRequests.get(session.id);
  if (!request) return false;
  await sessionQueue.start(session.id);
  const wasStopped = request.cancelled_at !== null || request.start_error !== null;
  if (request.queue_number === null && (request.first_turn_id !== null || !wasStopped)) return false;
  if (rateLimitError) throw rateLimitError;
  const input = await readInput(messages, { ...context, caller, host });
  if (await sessionQueue.buffer(session.id, input)) return true;
  await requireBudget(context, session.subject_id);
  if (await sessionQueue.revive(session.id, input)) return true;
  // It was admitted while the files were read: its task comes before these messages.
  await sessionQueue.start(session.id);
  return false;
}
