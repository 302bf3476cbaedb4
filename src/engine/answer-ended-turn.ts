import { offload } from '../blobs/offload.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { isShown, mayAnswer } from '../core/deciders.ts';
import { firstRefusal, refuseInputAnswer, type Refusal } from '../core/input-rules.ts';
import type { PendingCall } from '../core/records/pending.ts';
import { answerableAt, callKey, callName, type CallKey } from '../core/tool-records.ts';
import type { Answer, AnswerCommand } from '../core/turn-command.ts';
import { answerKey } from '../core/votes.ts';
import type { Caller, Subject } from '../core/subject.ts';
import { hashOf } from '../lib/hash.ts';
import { checkAnswersTo } from './check-answers.ts';
import { errorOf } from './command-turn.ts';
import type { Engine } from './engine.ts';
import { checkEdits } from './edited-arguments.ts';
import { EngineError } from './errors.ts';
import { restoreRecord } from './restore-records.ts';
import { ownerOf } from './start-turn.ts';
import { TurnRequest } from './turn-request.ts';
import type { TurnStatus } from './turn-sources.ts';

/** Longer texts of kept answers are in the blob store: see `offload`. */
const INLINE_BYTES = 1024;

/** An answer to a call that is pending on an ended turn. */
export interface KeptAnswer {
  /** Its longer texts may be in the blob store. */
  answer: Answer;
  decision: { by: Subject; at: string };
}

/** The answers that are kept until all pending calls of a session's last turn are answered. */
export interface AnswerStore {
  /**
   * Keeps what `choose` returns for the answers that are kept for the turn. Calls for one session run one after the
   * other. Returns false, without effect, if the session was deleted or another turn has followed.
   * @throws what `choose` throws
   */
  add: (
    turn: { sessionId: string; turnId: string; at: string },
    choose: (kept: KeptAnswer[]) => KeptAnswer[],
  ) => Promise<boolean>;
}

interface AnswersToEndedTurn {
  session: SessionRow;
  caller: Caller;
  /** The last turn of the session, which has ended. */
  turn: TurnStatus;
  /** The subject, its rights, and the `answers` as they were sent. */
  command: AnswerCommand;
}

/** The calls that are pending after some answers. */
export interface AcceptedAnswers {
  /** The ids of the calls that were answered. */
  accepted: string[];
  /** The ids of the calls that still wait. */
  waiting: string[];
  /** The ids of the calls whose answer the caller had given before: it counts once. */
  repeated: string[];
  /** The turn that was started with all answers. */
  turnId?: string;
}

/**
 * Answers calls that are pending on the ended last turn of a session. Answers are kept until there is one for each
 * pending call; the last of them starts the turn that has all of them as its input, and is not kept itself: if the turn
 * cannot be started, nothing was done, and a crash cannot leave a session whose calls are all answered without it.
 * Undefined if nothing is pending. @throws EngineError
 */
export async function answerEndedTurn(
  engine: Engine,
  { session, caller, turn, command }: AnswersToEndedTurn,
): Promise<AcceptedAnswers | undefined> {
  const { keptAnswers, blobs } = engine;
  const { answers, subject: by } = command;
  const pending = answerableAt(turn.pending, Date.now());
  if (pending.length === 0) return undefined;
  if (session.closed) throw new EngineError('session_closed', 'the session is closed');
  rejectIf(refuse(answers, { pending, kept: [], command }));
  const accepted = idsOf(answers);
  const sessionId = session.id;
  await checkAnswersTo(pending, answers, engine, sessionId);
  const { threads = [] } = turn;
  const context = { session, owner: ownerOf(session, caller), specHash: session.spec_hash, threads, pending };
  const stored = await Promise.all(
    (await checkEdits(engine, context, answers)).map((answer) =>
      offload(answer, { blobs, sessionId, inlineBytes: INLINE_BYTES }),
    ),
  );
  const at = new Date().toISOString();
  const given = stored.map((answer): KeptAnswer => ({ answer, decision: { by, at } }));
  let all: KeptAnswer[] = [];
  let waiting: PendingCall[] = [];
  let repeated: string[] = [];
  const isKept = await keptAnswers.add({ sessionId, turnId: turn.turnId, at }, (kept) => {
    rejectIf(refuse(stored, { pending, kept, command }));
    const known = new Set(kept.map(({ answer }) => callKey(answer)));
    const added = given.filter(({ answer }) => !known.has(callKey(answer)));
    repeated = idsOf(stored.filter((answer) => known.has(callKey(answer))));
    const awaited = new Set(pending.map(callKey));
    all = [...kept, ...added].filter(({ answer }) => awaited.has(callKey(answer)));
    const answered = new Set(all.map(({ answer }) => callKey(answer)));
    waiting = pending.filter((call) => !answered.has(callKey(call)));
    return waiting.length > 0 ? added : [];
  });
  if (!isKept) return repetitionIn(engine, { session, turn, command });
  if (waiting.length > 0) {
    const shown = waiting.filter((call) => isShown(call, command));
    return { accepted, waiting: idsOf(shown), repeated };
  }
  try {
    return { accepted, waiting: [], repeated, turnId: await startTurn(engine, { session, caller, turn, all }) };
  } catch (error) {
    if (!(error instanceof EngineError) || error.code !== 'call_not_pending') throw error;
    const repetition = await repetitionIn(engine, { session, turn, command });
    if (repetition) return repetition;
    throw new EngineError('already_decided', 'the last answer of another caller was first', { cause: error });
  }
}

/**
 * Another turn has followed. If its input has the answers, they are those of a request that was repeated while that
 * turn started. Undefined if it has not.
 */
async function repetitionIn(
  engine: Engine,
  { session, turn, command }: Omit<AnswersToEndedTurn, 'caller'>,
): Promise<AcceptedAnswers | undefined> {
  const last = await engine.turnIndex.confirmedLast(session.id);
  if (!last || last.id === turn.turnId || !(await isStartedWith(engine, last.id, command))) return undefined;
  const accepted = idsOf(command.answers);
  return { accepted, waiting: [], repeated: accepted, turnId: last.id };
}

export function idsOf(calls: readonly CallKey[]): string[] {
  return calls.map(({ toolCallId }) => toolCallId);
}

/** Whether the answers of a caller are in the input of a turn, which a repeated request finds started. */
export async function isStartedWith(
  { logs }: Pick<Engine, 'logs'>,
  turnId: string,
  { answers, subject }: Pick<AnswerCommand, 'answers' | 'subject'>,
): Promise<boolean> {
  const { created } = await logs.firstAndLast(turnId);
  const given = new Set<string>();
  for (const item of created.input) {
    if (item.type !== 'user.message') given.add(answerKey(item, item.by ?? created.createdBy));
  }
  return answers.every((answer) => given.has(answerKey(answer, subject)));
}

/** Starts the turn once, even if several callers send the last answers at the same time. @throws EngineError */
async function startTurn(
  engine: Engine,
  {
    session,
    caller,
    turn: { turnId },
    all,
  }: Pick<AnswersToEndedTurn, 'session' | 'caller' | 'turn'> & { all: KeptAnswer[] },
): Promise<string> {
  const { blobs, losses } = engine;
  const items = all.map(({ answer, decision: { by } }) => ({ ...answer, by }));
  const input = await restoreRecord(items, {
    blobs,
    losses,
    sessionId: session.id,
    turnId,
    recordId: `answers to ${turnId}`,
  });
  using request = new TurnRequest(engine, {
    sessionId: session.id,
    caller,
    key: undefined,
    bodyHash: hashOf({ answersTo: turnId, items }),
    previous: { turn: 'id', turnId },
    // If another turn runs, it has followed, and the session rejects this one.
    onRunning: 'cancel',
    answersCalls: true,
  });
  await using turn = await request.claim({ session, input, rateLimitError: undefined });
  await turn.start();
  await turn.whenIndexed();
  turn.acknowledge();
  return turn.turnId;
}

/** @throws EngineError */
function rejectIf(refusal: Refusal | undefined): void {
  if (refusal) throw errorOf(refusal);
}

function refuse(
  answers: Answer[],
  { pending, kept, command }: { pending: PendingCall[]; kept: KeptAnswer[]; command: AnswerCommand },
): Refusal | undefined {
  const { subject } = command;
  const calls = new Map(pending.map((call) => [callKey(call), call]));
  const earlier = new Map(kept.map((one) => [callKey(one.answer), one]));
  return firstRefusal(answers, (answer, isAnswered) => {
    const key = callKey(answer);
    const what = callName(answer);
    const asked = calls.get(key);
    const call = asked && isShown(asked, command) ? asked : undefined;
    const refusal = refuseInputAnswer({ ...answer, by: subject }, call, isAnswered);
    if (refusal) return refusal;
    if (!call || !mayAnswer(call, answer, command))
      return { code: 'not_an_approver', message: `you may not answer ${what}` };
    const known = earlier.get(key);
    const isRepeated = known && answerKey(known.answer, known.decision.by) === answerKey(answer, subject);
    return known && !isRepeated ? { code: 'already_decided', message: `${what} was already answered` } : undefined;
  });
}
