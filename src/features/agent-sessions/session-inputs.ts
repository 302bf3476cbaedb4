import type { Kysely } from 'kysely';
import type { InputItem } from '../../core/records/input.ts';
import type { Cipher } from '../../encryption/cipher.ts';
import type { Tables } from '../../catalog/schema.ts';
import { addStoredBytes } from '../../catalog/stored-bytes.ts';

/** Limits of a queued session's messages: the requests that may add them, and the characters of their JSON. */
const MAX_INPUTS = 100;
const MAX_CHARACTERS = 40 * 1024 * 1024;

/** The messages of one request. */
export interface RequestInput {
  /** A repeated request has the same id. */
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
   * Appends messages to those of the session; a repeated request adds nothing. False if the session would have too
   * many. `requestId` is null for the messages with which the session is created. The caller has locked the session.
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

  /** Whether the messages of this request were added to the session. True also after its first turn has taken them. */
  async hasRequest(db: Kysely<Tables>, sessionId: string, requestId: string): Promise<boolean> {
    const row = await db
      .selectFrom('session_inputs')
      .select('number')
      .where('session_id', '=', sessionId)
      .where('request_id', '=', requestId)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Deletes the messages, which the first turn now has. The ids of their requests are kept as long as the session. */
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

/** The stored messages of a session: their requests, their characters, and the number of the last request. */
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
