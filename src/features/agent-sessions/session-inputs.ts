import type { Kysely } from 'kysely';
import type { InputItem } from '../../core/records/input.ts';
import type { Cipher } from '../../encryption/cipher.ts';
import type { Tables } from '../../catalog/schema.ts';
import { addStoredBytes } from '../../catalog/stored-bytes.ts';

/** How many requests may bring messages to a session that waits, and their JSON, in characters. */
const MAX_INPUTS = 100;
const MAX_CHARACTERS = 40 * 1024 * 1024;

/** Messages that one request brings. */
export interface RequestInput {
  /** Equal for a repetition. */
  requestId: string;
  input: InputItem[];
}

/** The messages with which sessions begin, until their first turns are started. */
export class SessionInputs {
  readonly #cipher: Cipher;

  constructor(cipher: Cipher) {
    this.#cipher = cipher;
  }

  /**
   * Adds messages after those that the session has; those that a repetition brings are there. False if it has too many.
   * `requestId` is null for the messages with which the session is created. The caller holds a lock on the session.
   */
  async add(
    db: Kysely<Tables>,
    sessionId: string,
    { requestId, input }: { requestId: string | null; input: InputItem[] },
  ): Promise<boolean> {
    if (requestId !== null && (await this.hasRequest(db, sessionId, requestId))) return true;
    const { count, characters, last } = await stored(db, sessionId);
    const number = last + 1;
    const sealed = this.#cipher.sealText(JSON.stringify(input), aadFor(sessionId, number));
    if (count >= MAX_INPUTS || (count > 0 && characters + sealed.length > MAX_CHARACTERS)) return false;
    await db
      .insertInto('session_inputs')
      .values({ session_id: sessionId, number, request_id: requestId, input: sealed })
      .execute();
    // In the database's characters, which are those that `clear` subtracts.
    await addStoredBytes(db, sessionId, (await stored(db, sessionId)).characters - characters);
    return true;
  }

  /** Whether messages wait for the first turn. */
  async has(db: Kysely<Tables>, sessionId: string): Promise<boolean> {
    const row = await db
      .selectFrom('session_inputs')
      .select('number')
      .where('session_id', '=', sessionId)
      .where('input', 'is not', null)
      .limit(1)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Whether the session was given the messages of this request, also if its first turn has them by now. */
  async hasRequest(db: Kysely<Tables>, sessionId: string, requestId: string): Promise<boolean> {
    const row = await db
      .selectFrom('session_inputs')
      .select('number')
      .where('session_id', '=', sessionId)
      .where('request_id', '=', requestId)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** The first turn has the messages; which requests brought them is kept, as long as the session. */
  async clear(db: Kysely<Tables>, sessionId: string): Promise<void> {
    await addStoredBytes(db, sessionId, -(await stored(db, sessionId)).characters);
    await db.deleteFrom('session_inputs').where('session_id', '=', sessionId).where('request_id', 'is', null).execute();
    await db.updateTable('session_inputs').set({ input: null }).where('session_id', '=', sessionId).execute();
  }

  /** All messages, in their order. */
  async read(db: Kysely<Tables>, sessionId: string): Promise<InputItem[]> {
    const rows = await db
      .selectFrom('session_inputs')
      .select(['number', 'input'])
      .where('session_id', '=', sessionId)
      .where('input', 'is not', null)
      .$narrowType<{ input: string }>()
      .orderBy('number')
      .execute();
    return rows.flatMap(({ number, input }) => {
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `add`
      return JSON.parse(this.#cipher.openText(input, aadFor(sessionId, number))) as InputItem[];
    });
  }
}

/** The messages of a session: of how many requests, their characters, and the number of the last ones. */
function stored(db: Kysely<Tables>, sessionId: string): Promise<{ count: number; characters: number; last: number }> {
  return db
    .selectFrom('session_inputs')
    .select((eb) => [
      eb.fn.count<number>('input').as('count'),
      eb.fn.coalesce(eb.fn.sum<number>(eb.fn('length', ['input'])), eb.lit(0)).as('characters'),
      eb.fn.coalesce(eb.fn.max<number>('number'), eb.lit(0)).as('last'),
    ])
    .where('session_id', '=', sessionId)
    .executeTakeFirstOrThrow();
}

function aadFor(sessionId: string, number: number): string {
  return `session/${sessionId}/input/${number}`;
}
