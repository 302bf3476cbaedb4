import { mayOnSession } from '../auth/rights.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import { MAX_PAYLOAD_BYTES, offload, offloadItems } from '../blobs/offload.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isShown } from '../core/deciders.ts';
import type { Approval } from '../core/records.ts';
import type { TurnProjection } from '../core/projection.ts';
import type { Caller } from '../core/subject.ts';
import { callKey, isAnswerable, type CallKey } from '../core/tool-records.ts';
import type { TurnActions } from '../core/turn-actions.ts';
import type { Answer, AnswerCommand, Answerer, ToolkitRefresh } from '../core/turn-command.ts';
import { answerText } from '../core/votes.ts';
import { hashOf } from '../lib/hash.ts';
import { answerEndedTurn, idsOf, isStartedWith, type AcceptedAnswers } from './answer-ended-turn.ts';
import { checkAnswersTo } from './check-answers.ts';
import { CALLER_BYTES, commandTurn, errorOf } from './command-turn.ts';
import { checkEdits, hasEdits, inlineBytesOf } from './edited-arguments.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import { newId } from './new-id.ts';
import { turnStatus } from './turn-status.ts';

interface AnswersToCalls {
  /** From `authorizeSession`, or from `sessionWithAnswers`: a stranger to it is shown nothing but what it may decide. */
  session: SessionRow;
  caller: Caller;
  answers: Answer[];
  refreshes?: ToolkitRefresh[];
  /** An equal request with the same idempotency key came before. */
  isRepetition?: boolean;
}

/** Longer texts of toolkits are in the blob store, which has a list that is repeated once. */
const INLINE_BYTES = 1024;

/**
 * Answers calls that wait in the running turn of a session, and returns once the turn has recorded the answers: all of
 * them, or none. Those of an ended turn are kept until the next turn starts with them. A repeated answer changes nothing.
 * A call that is asked about once more makes an answer look like a repetition of the first one: it is one if the request
 * is known to be, or if another call that it answers does not wait any more.
 * `refreshes` are for a turn that is running.
 * @throws EngineError, `unavailable` if it is unknown whether the turn will record them
 */
export async function answerCalls(
  engine: Engine,
  { session, caller, answers, refreshes, isRepetition = false }: AnswersToCalls,
): Promise<AcceptedAnswers> {
  const { turnIndex, logs, blobs } = engine;
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
    ...(!mayOnSession(caller, session, 'read') && { isStranger: true }),
    answers,
    ...(refreshes && { refreshes }),
  };
  const accepted = idsOf(answers);
  const mayBeRepeated = (waiting: CallKey[]): boolean => {
    const keys = new Set(waiting.map(callKey));
    return answers.length > 0 && (isRepetition || answers.some((answer) => !keys.has(callKey(answer))));
  };
  if (!status.open) {
    const pending = status.pending.filter(isAnswerable);
    if (mayBeRepeated(pending) && (await isStartedWith(engine, last.id, sent))) {
      const shown = pending.filter((call) => isShown({ pending: call }, sent));
      return { accepted, waiting: idsOf(shown), repeated: accepted, turnId: last.id };
    }
    const answered = await answerEndedTurn(engine, { session, caller, turn: status, command: sent });
    if (answered) return answered;
  }
  const run = await logs.currentRun(last.id);
  const { actions, done, start, threads } = run;
  const pending = actions?.waiting.map(({ call }) => call) ?? [];
  const isMaybeRepeated = mayBeRepeated(pending);
  if (isMaybeRepeated && (await isStartedWith(engine, last.id, sent)))
    return { accepted, waiting: actions ? shownCalls(actions, sent) : [], repeated: accepted, turnId: last.id };
  if (!actions || !start) throw nothingPending();
  const store = { blobs, sessionId: session.id, maxBytes: MAX_PAYLOAD_BYTES - CALLER_BYTES };
  const hashed = answers.map(withHash);
  const command: AnswerCommand = { ...sent, answers: await offload(hashed, store) };
  if (done) {
    if (!(await wasAccepted(engine, run, { turnId: last.id, ...command }))) throw nothingPending();
    return { accepted, waiting: [], repeated: accepted };
  }
  const refusal = actions.refuse(command);
  if ((refusal || isMaybeRepeated) && (await wasAccepted(engine, run, { turnId: last.id, ...command })))
    return { accepted, waiting: shownCalls(actions, command), repeated: accepted };
  if (refusal) throw errorOf(refusal);
  await checkAnswersTo(pending, answers, engine, session.id);
  if (hasEdits(answers) || refreshes) {
    const context = { session, owner: start.owner, specHash: start.specHash, threads, pending };
    const checked = hasEdits(answers) ? await checkEdits(engine, context, hashed) : hashed;
    Object.assign(command, await offloadAnswers({ answers: checked, refreshes }, store));
  }
  const after = await commandTurn(engine, last.id, command);
  if (!after?.actions) throw nothingPending();
  return {
    accepted,
    waiting: shownCalls(after.actions, command),
    repeated: idsOf(after.repeated.get(command.id) ?? []),
  };
}

/** What a command has of them. @throws PayloadTooLarge */
async function offloadAnswers(
  { answers, refreshes = [] }: { answers: Answer[]; refreshes: ToolkitRefresh[] | undefined },
  store: { blobs: BlobStore; sessionId: string; maxBytes: number },
): Promise<Pick<AnswerCommand, 'answers' | 'refreshes'>> {
  const stored = await offloadItems<Answer | ToolkitRefresh>([...answers, ...refreshes], {
    ...store,
    inlineBytesOf: (item) => ('toolkit' in item ? INLINE_BYTES : inlineBytesOf(item)),
  });
  return {
    answers: stored.flatMap((item) => ('toolkit' in item ? [] : [item])),
    ...(refreshes.length > 0 && { refreshes: stored.flatMap((item) => ('toolkit' in item ? [item] : [])) }),
  };
}

/** The ids of the calls that wait, as far as the caller knows of them. */
function shownCalls({ waiting }: Pick<TurnActions, 'waiting'>, caller: Answerer): string[] {
  const shown = waiting.filter(({ call, isEscalated }) => isShown({ pending: call, isEscalated }, caller));
  return idsOf(shown.map(({ call }) => call));
}

/**
 * Whether the turn has recorded the same answers of the same caller before: their calls may have run since, and the
 * response may have been lost.
 */
async function wasAccepted(
  { logs }: Engine,
  { accepted }: Pick<TurnProjection, 'accepted'>,
  {
    turnId,
    answers,
    refreshes = [],
    subject,
  }: Pick<AnswerCommand, 'answers' | 'refreshes' | 'subject'> & { turnId: string },
): Promise<boolean> {
  const decided = new Set<string>();
  for await (const { entries } of logs.readStored(turnId)) {
    for (const { record } of entries) {
      if (!('by' in record) || record.by?.subjectId !== subject.subjectId) continue;
      if (record.kind === 'tool.decided') {
        decided.add(`${record.decision} ${callKey(record)} ${record.edited?.hash} ${record.isRemembered}`);
      }
      if (record.kind === 'toolkit.refreshed') decided.add(refreshKey(record));
      if (record.kind === 'tool.response') decided.add(`respond ${callKey(record)} ${record.answerHash}`);
    }
  }
  // The log has what was decided, and not what servers were answered.
  const given = accepted.flatMap((one) => (one.subject.subjectId === subject.subjectId ? one.answers : []));
  if (!refreshes.every((one) => decided.has(refreshKey(one)))) return false;
  return answers.every((answer) =>
    answer.type === 'user.tool_approval'
      ? decided.has(`${answer.approval.status} ${callKey(answer)} ${editedHash(answer.approval)} ${answer.remembers}`)
      : decided.has(`respond ${callKey(answer)} ${answer.hash}`) || given.some((one) => isSame(one, answer)),
  );
}

function refreshKey({ messageId, toolkit, hash }: Pick<ToolkitRefresh, 'messageId' | 'toolkit' | 'hash'>): string {
  return `refresh ${messageId} ${toolkit} ${hash}`;
}

function isSame(one: Answer, other: Answer): boolean {
  return callKey(one) === callKey(other) && answerText(one) === answerText(other);
}

/** Before long texts are replaced by references. */
function withHash(answer: Answer): Answer {
  if (answer.type !== 'user.tool_response') return answer;
  const { content, files, fullText, isError, error } = answer;
  return { ...answer, hash: hashOf({ content, files, fullText, isError, error }) };
}

function editedHash(approval: Approval): string | undefined {
  return approval.status === 'allow' ? approval.edited?.hash : undefined;
}

function nothingPending(): EngineError {
  return new EngineError('nothing_pending', 'no tool call of the session waits for an answer');
}
