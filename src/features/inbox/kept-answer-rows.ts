import type { Kysely, Transaction } from 'kysely';
import type { Tables } from '../../catalog/schema.ts';
import { callKey, type CallKey } from '../../core/tool-records.ts';
import type { Cipher } from '../../encryption/cipher.ts';
import type { KeptAnswer } from '../../engine/answer-ended-turn.ts';
import type { ActionDecision } from './action-index.ts';

/** An answer to a call that is pending on an ended turn, as the inbox shows it. */
export interface StoredAnswer extends KeptAnswer {
  decision: ActionDecision & KeptAnswer['decision'];
}

/** The answers that are kept for a turn. */
export async function keptAnswers(db: Kysely<Tables>, cipher: Cipher, turnId: string): Promise<StoredAnswer[]> {
  const rows = await db.selectFrom('kept_answers').selectAll().where('turn_id', '=', turnId).execute();
  return rows.map(({ thread_id: threadId, tool_call_id: toolCallId, answer }) => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `KeptAnswers`
    return JSON.parse(cipher.openText(answer, aadForAnswer(turnId, { threadId, toolCallId }))) as StoredAnswer;
  });
}

/** Deletes the kept answers to the turns before `sequence`. Returns the keys of the answered calls, by their turns. */
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
