import { mayOnSession } from '../auth/rights.ts';
import { MAX_PAYLOAD_BYTES, offloadItems, type BlobTarget } from '../blobs/offload.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isShown } from '../core/deciders.ts';
import type { PendingCall } from '../core/records/pending.ts';
import type { SubAgent } from '../core/records/threads.ts';
import type { Caller } from '../core/subject.ts';
import { answerableAt, callKey, type CallKey } from '../core/tool-records.ts';
import type { TurnActions } from '../core/turn-actions.ts';
import type { Answer, AnswerCommand, Answerer, ToolkitRefresh } from '../core/turn-command.ts';
import { hashOf } from '../lib/hash.ts';
import { answerEndedTurn, idsOf, isStartedWith, type AcceptedAnswers } from './answer-ended-turn.ts';
import { checkAnswersTo } from './check-answers.ts';
import { CALLER_BYTES, errorOf, executeCommand } from './command-turn.ts';
import { checkEdits, inlineBytesOf } from './edited-arguments.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import { newId } from './new-id.ts';

interface AnswersToCalls {
  /** From `authorizeSession`, or from `sessionWithAnswers`: a stranger to it sees only calls that it may decide on. */
  session: SessionRow;
  caller: Caller;
  answers: Answer[];
  refreshes?: ToolkitRefresh[];
  /** An equal request with the same idempotency key came before. */
  isRepetition?: boolean;
}

/** Longer texts of toolkits are in the blob store, which stores a repeated list of tools once. */
const INLINE_BYTES = 1024;

/**
 * Answers calls that wait in the running turn of a session, and returns once the turn has recorded the answers: all of
 * them, or none. Answers to an ended turn are kept until the next turn starts with them. A repeated answer changes
 * nothing. If a call asks again, an equal answer looks like a repetition of the first one. It is one only if the
 * request is known to be a repetition, or if another call of the request no longer waits. `refreshes` are for a turn
 * that is running.
 * @throws EngineError, `unavailable` if it is unknown whether the turn will record them
 */
export async function answerCalls(
  engine: Engine,
  { session, caller, answers, refreshes, isRepetition = false }: AnswersToCalls,
): Promise<AcceptedAnswers> {
  const { turnIndex, logs, blobs } = engine;
  const last = await turnIndex.confirmedLast(session.id);
  const status = last && (await engine.logs.status(last.id));
  if (!last || !status) throw nothingPending();
  const sent: AnswerCommand = {
    type: 'answer',
    id: newId('req'),
    subject: caller.subject,
    roles: caller.roles,
    mayDecide: mayOnSession(caller, session, 'decide'),
    mayRespond: mayOnSession(caller, session, 'send'),
    ...(!mayOnSession(caller, session, 'read') && { isStranger: true }),
    answers,
    ...(refreshes && { refreshes }),
  };
  const accepted = idsOf(answers);
  const isStarted = async (waiting: CallKey[]): Promise<boolean> => {
    const keys = new Set(waiting.map(callKey));
    const isNew = !isRepetition && answers.every((answer) => keys.has(callKey(answer)));
    return !isNew && answers.length > 0 && isStartedWith(engine, last.id, sent);
  };
  if (!status.open) {
    const pending = answerableAt(status.pending, Date.now());
    if (await isStarted(pending)) {
      const shown = pending.filter((call) => isShown(call, sent));
      return { accepted, waiting: idsOf(shown), repeated: accepted, turnId: last.id };
    }
    const answered = await answerEndedTurn(engine, { session, caller, turn: status, command: sent });
    if (answered) return answered;
  }
  const { actions, done, start, subAgents: threads } = await logs.currentRun(last.id);
  if (!actions || !start) throw nothingPending();
  const { waiting: pending } = actions.questions;
  if (status.open && (await isStarted(pending)))
    return { accepted, waiting: shownCalls(actions, sent), repeated: accepted, turnId: last.id };
  const command: AnswerCommand = {
    ...sent,
    answers: answers.map(withHash),
    askedUntil: Math.max(0, ...pending.map(({ askedAt = 0 }) => askedAt)),
    ...((isRepetition || done) && { isRepetition: true }),
  };
  if (actions.isRepetition(command))
    return { accepted, waiting: done ? [] : shownCalls(actions, sent), repeated: accepted };
  if (done) throw nothingPending();
  const refusal = actions.refuse(command);
  if (refusal) throw errorOf(refusal);
  await checkAnswersTo(pending, answers, engine, session.id);
  const context = { session, owner: start.owner, specHash: start.specHash, threads, pending };
  const checked = await checkEdits(engine, context, command.answers);
  const stored = await offloadAnswers({ answers: checked, refreshes }, { blobs, sessionId: session.id });
  const recorded = await executeCommand(engine, last.id, { ...command, ...stored });
  if (!recorded?.turn.actions) throw nothingPending();
  return { accepted, waiting: shownCalls(recorded.turn.actions, sent), repeated: idsOf(recorded.repeated) };
}

/** The calls of a session that wait, and the sub-agents of their turn. */
export async function waitingNow(
  { turnIndex, logs }: Engine,
  session: SessionRow,
): Promise<{ pending: PendingCall[]; threads?: SubAgent[] }> {
  const last = await turnIndex.confirmedLast(session.id);
  const status = last && (await logs.status(last.id));
  if (!status) return { pending: [] };
  if (!status.open) return status;
  const { actions, subAgents: threads } = await logs.currentRun(status.turnId);
  return { pending: actions?.questions.waiting ?? [], threads };
}

/** The answers and refreshes, as a command contains them. @throws PayloadTooLarge */
async function offloadAnswers(
  { answers, refreshes = [] }: { answers: Answer[]; refreshes: ToolkitRefresh[] | undefined },
  store: BlobTarget,
): Promise<Pick<AnswerCommand, 'answers' | 'refreshes'>> {
  const stored = await offloadItems<Answer | ToolkitRefresh>([...answers, ...refreshes], {
    ...store,
    maxBytes: MAX_PAYLOAD_BYTES - CALLER_BYTES,
    inlineBytesOf: (item) => ('toolkit' in item ? INLINE_BYTES : inlineBytesOf(item)),
  });
  return {
    answers: stored.flatMap((item) => ('toolkit' in item ? [] : [item])),
    ...(refreshes.length > 0 && { refreshes: stored.flatMap((item) => ('toolkit' in item ? [item] : [])) }),
  };
}

/** The ids of the waiting calls that the caller may see. */
function shownCalls({ questions }: TurnActions, caller: Answerer): string[] {
  return idsOf(questions.waiting.filter((call) => isShown(call, caller)));
}

/** Adds the hash of a response, before long texts are replaced by references. */
function withHash(answer: Answer): Answer {
  if (answer.type !== 'user.tool_response') return answer;
  const { content, files, fullText, isError, error } = answer;
  return { ...answer, hash: hashOf({ content, files, fullText, isError, error }) };
}

function nothingPending(): EngineError {
  return new EngineError('nothing_pending', 'no tool call of the session waits for an answer');
}
