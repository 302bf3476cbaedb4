import type { Kysely, Transaction } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { Tables } from './schema.ts';
import { LISTED_CHARACTERS } from './session-requests.ts';

/** The texts of a session by which lists are searched. */
export interface SessionTexts {
  firstMessage?: string;
  lastAnswer?: string;
}

/** Stores those that are given, in the transaction of what brings them. */
export async function storeTexts(
  db: Transaction<Tables>,
  cipher: Cipher,
  sessionId: string,
  { firstMessage, lastAnswer }: SessionTexts,
): Promise<void> {
  if (firstMessage === undefined && lastAnswer === undefined) return;
  const sealed = (text: string, name: string) =>
    cipher.sealText(text.slice(0, LISTED_CHARACTERS), aadFor(sessionId, name));
  const row = {
    ...(firstMessage !== undefined && { first_message: sealed(firstMessage, 'first-message') }),
    ...(lastAnswer !== undefined && { last_answer: sealed(lastAnswer, 'last-answer') }),
  };
  await db
    .insertInto('session_texts')
    .values({ session_id: sessionId, ...row })
    .onConflict((conflict) => conflict.column('session_id').doUpdateSet(row))
    .execute();
}

/** The texts of several sessions, by their ids. One whose key is missing is as one that is not stored. */
export async function textsOf(
  db: Kysely<Tables>,
  cipher: Cipher,
  sessionIds: string[],
): Promise<Map<string, SessionTexts>> {
  if (sessionIds.length === 0) return new Map();
  const rows = await db.selectFrom('session_texts').selectAll().where('session_id', 'in', sessionIds).execute();
  return new Map(
    rows.map(({ session_id: id, first_message: first, last_answer: last }) => {
      const firstMessage = cipher.openLabel(first, aadFor(id, 'first-message'));
      const lastAnswer = cipher.openLabel(last, aadFor(id, 'last-answer'));
      return [id, { ...(firstMessage !== null && { firstMessage }), ...(lastAnswer !== null && { lastAnswer }) }];
    }),
  );
}

function aadFor(sessionId: string, name: string): string {
  return `session/${sessionId}/text/${name}`;
}
