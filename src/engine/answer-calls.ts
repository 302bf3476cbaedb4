import { mayOnSession } from '../auth/rights.ts';
import { MAX_PAYLOAD_BYTES, offload } from '../blobs/offload.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { Caller } from '../core/subject.ts';
import { callKey } from '../core/tool-records.ts';
import type { Answer, AnswerCommand, Verdict } from '../core/turn-actions.ts';
import { answerEndedTurn, isStartedWith, type AcceptedAnswers } from './answer-ended-turn.ts';
import { checkAnswersTo } from './check-answers.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import { newId } from './new-id.ts';
import { turnStatus } from './turn-status.ts';

/** How long the turn may take to record the answers: a worker that was lost is replaced within seconds. */
const VERDICT_TIMEOUT_MS = 30_000;

/** What a command may take in a Temporal payload beside its answers: the caller and its roles. */
const CALLER_BYTES = 16 * 1024;

interface AnswersToCalls {
  /** From `authorizeSession`: the caller may read it. */
  session: SessionRow;
  caller: Caller;
  answers: Answer[];
}

/**
 * Answers calls that wait in the running turn of a session, and returns once the turn has recorded the answers: all of
 * them, or none. Those of an ended turn are kept until the next turn starts with them. A repeated answer changes nothing.
 * @throws EngineError, `unavailable` if it is unknown whether the turn will record them
 */
export async function answerCalls(
  engine: Engine,
  { session, caller, answers }: AnswersToCalls,
): Promise<AcceptedAnswers> {
  const { turnIndex, logs, blobs, commands } = engine;
  const last = await turnIndex.confirmedLast(session.id);
  const status = last && (await turnStatus(last.id, engine));
  if (!last || !status) throw nothingPending();
  const sent: AnswerCommand = {
    type: 'answer',
    id: newId('req'),
    subject: caller.subject,
    roles: caller.roles,
    mayDecide: mayOnSession(caller, session, 'decide'),
    mayRespond: mayOnSession(caller, session, 'send'),
    answers,
  };
  if (!status.open) {
    const answered = await answerEndedTurn(engine, { session, turn: status, command: sent });
    return answered ?? startedWith(engine, last.id, sent);
  }
  const { actions, done } = await logs.currentRun(last.id);
  if (!actions?.waits || done) return startedWith(engine, last.id, sent);
  const stored = await offload(answers, {
    blobs,
    sessionId: session.id,
    maxBytes: MAX_PAYLOAD_BYTES - CALLER_BYTES,
  });
  const command: AnswerCommand = { ...sent, answers: stored };
  const refusal = actions.refuse(command);
  if (refusal && !(await wasAccepted(engine, last.id, command))) throw errorOf(refusal);
  const accepted = answers.map(({ toolCallId }) => toolCallId);
  if (!refusal)
    await checkAnswersTo(
      actions.waiting.map(({ call }) => call),
      answers,
      engine,
      session.id,
    );
  if (refusal) return { accepted, waiting: actions.waiting.map(({ call }) => call.toolCallId) };
  await commands.answer(last.id, command);
  return { accepted, waiting: await waitingAfter(engine, last.id, command.id) };
}

/** Waits until a command is recorded. Returns the ids of the calls that wait then. @throws EngineError if it is refused */
async function waitingAfter({ logs }: Engine, turnId: string, commandId: string): Promise<string[]> {
  const timeout = AbortSignal.timeout(VERDICT_TIMEOUT_MS);
  try {
    const { verdicts, actions } = await logs.currentRun(turnId, {
      until: (projection) => projection.verdicts.has(commandId),
      follow: timeout,
    });
    // Without a verdict the turn has ended before it could record the command.
    const verdict = verdicts.has(commandId) ? verdicts.get(commandId) : NOTHING_PENDING;
    if (verdict) throw errorOf(verdict);
    return actions?.waiting.map(({ call }) => call.toolCallId) ?? [];
  } catch (error) {
    if (!timeout.aborted) throw error;
    throw new EngineError('unavailable', 'the turn has not recorded the answers yet: send them again', {
      cause: error,
    });
  }
}

/**
 * Whether the turn has recorded the same answers of the same caller before: their calls may have run since, and the
 * response may have been lost.
 */
async function wasAccepted({ logs }: Engine, turnId: string, { answers, subject }: AnswerCommand): Promise<boolean> {
  const decided = new Set<string>();
  for await (const { entries } of logs.readStored(turnId)) {
    for (const { record } of entries) {
      if (record.kind !== 'tool.decided' || record.by?.subjectId !== subject.subjectId) continue;
      decided.add(`${record.decision} ${callKey(record)}`);
    }
  }
  return answers.every(
    (answer) => answer.type === 'user.tool_approval' && decided.has(`${answer.approval.status} ${callKey(answer)}`),
  );
}

/** The turn may have been started with the same answers of the same caller. @throws EngineError `nothing_pending` */
async function startedWith(engine: Engine, turnId: string, command: AnswerCommand): Promise<AcceptedAnswers> {
  if (!(await isStartedWith(engine, turnId, command))) throw nothingPending();
  return { accepted: command.answers.map(({ toolCallId }) => toolCallId), waiting: [], turnId };
}

const NOTHING_PENDING = {
  code: 'nothing_pending',
  message: 'no tool call of the session waits for an answer',
} as const;

function nothingPending(): EngineError {
  return errorOf(NOTHING_PENDING);
}

function errorOf({ code, message, param }: NonNullable<Verdict>): EngineError {
  return new EngineError(code, message, { param });
}
