import type { Kysely, Transaction } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import { callKey, type CallKey } from '../core/tool-records.ts';
import type { Subject } from '../core/subject.ts';
import type { Answer } from '../core/turn-command.ts';
import type { ActionDecision } from './action-index.ts';
import type { Tables } from './schema.ts';

/** An answer to a call that is pending on an ended turn. */
export interface KeptAnswer {
  /** Its longer texts may be in the blob store. */
  answer: Answer;
  /** As the inbox shows it. */
  decision: ActionDecision & { by: Subject };
}

/** The answers that are kept for a turn. */
export async function keptAnswers(db: Kysely<Tables>, cipher: Cipher, turnId: string): Promise<KeptAnswer[]> {
  const rows = await db.selectFrom('kept_answers').selectAll().where('turn_id', '=', turnId).execute();
  return rows.map(({ thread_id: threadId, tool_call_id: toolCallId, answer }) => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `KeptAnswers`
    return JSON.parse(cipher.openText(answer, aadForAnswer(turnId, { threadId, toolCallId }))) as KeptAnswer;
  });
}

/** Ends what is kept for the turns of a session before `sequence`. Returns the calls that were answered, by their turns. */
export async function endKeptAnswers(
  db: Transaction<Tables>,
  sessionId: string,
  sequence: number,
): Promise<Map<string, Set<string>>> {
  const rows = await db
    .selectFrom('kept_answers')
    .innerJoin('turns', 'turns.id', 'kept_answers.turn_id')
    .select(['turn_id', 'thread_id', 'tool_call_id'])
    .where('kept_answers.session_id', '=', sessionId)
    .where('turns.sequence', '<', sequence)
    .execute();
  const byTurn = new Map<string, Set<string>>();
  for (const { turn_id: turnId, thread_id: threadId, tool_call_id: toolCallId } of rows) {
    const calls = byTurn.get(turnId) ?? new Set();
    byTurn.set(turnId, calls.add(callKey({ threadId, toolCallId })));
  }
  if (byTurn.size > 0)
    await db
      .deleteFrom('kept_answers')
      .where('turn_id', 'in', [...byTurn.keys()])
      .execute();
  return byTurn;
}

/** The additional authenticated data of an answer. */
export function aadForAnswer(turnId: string, call: CallKey): string {
  return `kept_answers/${turnId}/${callKey(call)}`;
}
