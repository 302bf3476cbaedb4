import { restore, unlessLost } from '../blobs/offload.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { SessionOwner } from '../core/history.ts';
import type { InputItem } from '../core/records/input.ts';
import type { Elicitation, PendingCall, Waiting } from '../core/records/pending.ts';
import { callKey } from '../core/tool-records.ts';
import { isTurnOf } from './access.ts';
import { checkEdits, hasEdits } from './edited-arguments.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import type { PreviousTurn } from './start-turn.ts';

/** Why the content of a response does not answer a server's question: see `src/tools/elicitation-answer.ts`. */
export type AnswerCheck = (question: Elicitation, content: string) => string | undefined;

type CheckServices = Pick<Engine, 'catalog' | 'blobs' | 'logs' | 'answerCheck' | 'editCheck'>;

/**
 * Checks the responses of an input that answer questions of MCP servers on the turn that it follows, and its edits of
 * arguments. Whether the calls still wait is decided by the session; a turn that cannot be read here yet is checked by
 * the activity. Returns the input without edits that change nothing.
 * @throws EngineError `invalid_answer`, and those of `checkEdits`
 */
export async function checkAnswers(
  engine: CheckServices,
  {
    session,
    owner,
    previous,
    input,
  }: { session: SessionRow; owner: SessionOwner; previous: PreviousTurn; input: InputItem[] },
): Promise<InputItem[]> {
  if (!hasEdits(input) && !input.some(({ type }) => type === 'user.tool_response')) return input;
  const { pending, threads = [] } = await waitingOn(engine, session, previous);
  await checkAnswersTo(pending, input, engine, session.id);
  return checkEdits(engine, { session, owner, specHash: session.spec_hash, threads, pending }, input);
}

/** As `checkAnswers`, for calls that are known. @throws EngineError `invalid_answer` */
export async function checkAnswersTo(
  pending: PendingCall[],
  input: InputItem[],
  { blobs, answerCheck }: Pick<Engine, 'blobs' | 'answerCheck'>,
  sessionId: string,
): Promise<void> {
  const elicitations = new Map(pending.map((call) => [callKey(call), call.elicitation]));
  for (const [i, item] of input.entries()) {
    if (item.type !== 'user.tool_response') continue;
    const elicitation = elicitations.get(callKey(item));
    if (!elicitation) continue;
    const asked = await unlessLost(restore({ question: elicitation.question }, { blobs, sessionId }));
    // The activity ends a call whose question is lost.
    if (!asked) continue;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the activity `callTool`
    const problem = answerCheck(JSON.parse(asked.question) as Elicitation, item.content);
    if (problem) throw new EngineError('invalid_answer', problem, { param: `input.${i}.content` });
  }
}

/** The calls and threads that wait on the turn which a new one is to follow. */
export async function waitingOn(
  { catalog, logs }: Pick<CheckServices, 'catalog' | 'logs'>,
  session: SessionRow,
  previous: PreviousTurn,
): Promise<Waiting> {
  if (previous.turn === 'none') return { pending: [] };
  const { turns } = catalog;
  const row = await (previous.turn === 'last' ? turns.last(session.id) : turns.get(previous.turnId));
  if (!row || !isTurnOf(session, row)) return { pending: [] };
  return (await logs.status(row.id)) ?? { pending: [] };
}
