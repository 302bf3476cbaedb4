import type { Kysely, Transaction } from 'kysely';
import type { Cipher } from '../../encryption/cipher.ts';
import type { LogReader } from '../../catalog/log-reader.ts';
import type { Tables } from '../../catalog/schema.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import type { TurnStart } from '../../core/history.ts';
import type { InputItem } from '../../core/records/input.ts';
import type { LogEntry } from '../../core/records/log.ts';
import type { TurnLogReader } from '../../engine/turn-log-reader.ts';
import { LISTED_CHARACTERS } from './session-requests.ts';

declare module '../../catalog/log-reader.ts' {
  interface StartReading {
    /** The text of the session's first message. */
    firstMessage?: string | undefined;
  }
  interface EntriesReading {
    /** The text of the final message, if the log ends with one. */
    answer?: string | undefined;
  }
  interface SessionReading {
    texts?: SessionTexts;
  }
}

/** The texts of a session by which lists are searched. */
interface SessionTexts {
  firstMessage?: string | undefined;
  lastAnswer?: string | undefined;
}

export function sessionTextsReader(cipher: Cipher): LogReader {
  return {
    turnAccepted: (db, { sessionId, firstMessage }) => storeTexts(db, cipher, sessionId, { firstMessage }),
    turnEnded: async (db, { sessionId, session, isLast }, { answer: lastAnswer = '' }) => {
      if (isLast && !isOfRun(session)) await storeTexts(db, cipher, sessionId, { lastAnswer });
    },
    sessionDerived: (db, sessionId, { texts = {} }) => storeTexts(db, cipher, sessionId, texts),
  };
}

/** The text of a session's first message. Undefined if its blobs cannot be read, so that the turn is still indexed. */
export async function firstMessageOf(
  start: Omit<TurnStart, 'resumes' | 'queued'>,
  logs: Pick<TurnLogReader, 'inputOf'>,
): Promise<string | undefined> {
  if (start.sequence !== 1 || start.isRun) return undefined;
  return logs.inputOf(start).then(firstMessageText, () => undefined);
}

/** The text of the first message of an input; empty if it has none. */
export function firstMessageText(input: InputItem[]): string {
  for (const item of input) {
    if (item.type !== 'user.message') continue;
    const { content } = item;
    return typeof content === 'string'
      ? content
      : content.map((part) => (part.type === 'text' ? part.text : '')).join('');
  }
  return '';
}

/** The text of a turn's final message; undefined if the turn has not ended with one. */
export async function answerOf(
  { ordinal, record }: LogEntry,
  turnId: string,
  logs: Pick<TurnLogReader, 'all'>,
): Promise<string | undefined> {
  if (record.kind !== 'turn.done' || record.end.status !== 'done' || !record.end.output) return undefined;
  const { content, refusal } = record.end.output;
  // A large message is in the blob store.
  if (typeof content === 'string' && typeof refusal === 'string') return content || refusal;
  const [restored] = await logs.all(turnId, { from: ordinal });
  return restored && answerOf(restored, turnId, logs);
}

/** Stores the texts that are present, in the caller's transaction. */
async function storeTexts(
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

/** The texts of several sessions, by their ids. A text whose key is missing is omitted, as if it were not stored. */
export async function sessionTexts(
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
