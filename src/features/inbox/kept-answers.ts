import type { Transaction } from 'kysely';
import { referToBlobs } from '../../catalog/blob-references.ts';
import type { Tables } from '../../catalog/schema.ts';
import { touchSession } from '../../catalog/sessions.ts';
import type { AnswerStore, KeptAnswer } from '../../engine/answer-ended-turn.ts';
import { decisionOf } from './action-changes.ts';
import { ActionIndex } from './action-index.ts';
import { aadForAnswer, keptAnswers, type StoredAnswer } from './kept-answer-rows.ts';
import { Store } from '../../catalog/store.ts';

/** The answers that are kept until all pending calls of a session's last turn are answered. */
export class KeptAnswers extends Store implements AnswerStore {
  readonly #actions = new ActionIndex(this.cipher);

  /** Adds answers, and changes the inbox in the same transaction. */
  async add(
    { sessionId, turnId, at }: { sessionId: string; turnId: string; at: string },
    choose: (kept: KeptAnswer[]) => KeptAnswer[],
  ): Promise<boolean> {
    return this.context.outbox.transaction(async (db, emit) => {
      if (!(await touchSession(db, { id: sessionId, at })) || !(await isLast(db, sessionId, turnId))) return false;
      const added = choose(await keptAnswers(db, this.cipher, turnId)).map(({ answer, decision }): StoredAnswer => ({
        answer,
        decision: { ...decision, ...decisionOf(answer) },
      }));
      if (added.length === 0) return true;
      const texts = added.map((one) => JSON.stringify(one));
      const rows = added.map(({ answer: { threadId, toolCallId } }, i) => ({
        turn_id: turnId,
        thread_id: threadId,
        tool_call_id: toolCallId,
        session_id: sessionId,
        answer: this.cipher.sealText(texts[i] ?? '', aadForAnswer(turnId, { threadId, toolCallId })),
      }));
      await db.insertInto('kept_answers').values(rows).execute();
      await referToBlobs(db, sessionId, texts);
      emit(...(await this.#actions.kept(db, turnId, added)));
      return true;
    });
  }
}

async function isLast(db: Transaction<Tables>, sessionId: string, turnId: string): Promise<boolean> {
  const last = await db
    .selectFrom('turns')
    .select('id')
    .where('session_id', '=', sessionId)
    .where('sequence', 'is not', null)
    .orderBy('sequence', 'desc')
    .limit(1)
    .executeTakeFirst();
  return last?.id === turnId;
}
