import type { Transaction } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { ActionIndex } from './action-index.ts';
import { referToBlobs } from './blob-references.ts';
import { aadForAnswer, keptAnswers, type KeptAnswer } from './kept-answer-rows.ts';
import type { Outbox } from './outbox.ts';
import type { Tables } from './schema.ts';
import { touchSession } from './sessions.ts';

interface KeptAnswersOptions {
  cipher: Cipher;
  outbox: Outbox;
  actions: ActionIndex;
}

/** The answers that are kept until all pending calls of a session's last turn are answered. */
export class KeptAnswers {
  readonly #cipher: Cipher;
  readonly #outbox: Outbox;
  readonly #actions: ActionIndex;

  constructor({ cipher, outbox, actions }: KeptAnswersOptions) {
    this.#cipher = cipher;
    this.#outbox = outbox;
    this.#actions = actions;
  }

  /**
   * Keeps what `choose` returns, given what is kept for the turn. Calls for one session follow each other. The inbox
   * changes in the same transaction. False, and without effect, if the session was deleted or another turn has followed.
   * @throws what `choose` throws
   */
  async add(
    { sessionId, turnId, at }: { sessionId: string; turnId: string; at: string },
    choose: (kept: KeptAnswer[]) => KeptAnswer[],
  ): Promise<boolean> {
    return this.#outbox.transaction(async (db, emit) => {
      if (!(await touchSession(db, { id: sessionId, at })) || !(await isLast(db, sessionId, turnId))) return false;
      const added = choose(await keptAnswers(db, this.#cipher, turnId));
      if (added.length === 0) return true;
      const texts = added.map((one) => JSON.stringify(one));
      const rows = added.map(({ answer: { threadId, toolCallId } }, i) => ({
        turn_id: turnId,
        thread_id: threadId,
        tool_call_id: toolCallId,
        session_id: sessionId,
        answer: this.#cipher.sealText(texts[i] ?? '', aadForAnswer(turnId, { threadId, toolCallId })),
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
