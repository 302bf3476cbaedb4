import type { Kysely } from 'kysely';
import type { InputItem } from '../core/records.ts';
import type { Cipher } from '../encryption/cipher.ts';
import type { Tables } from './schema.ts';

/** How many requests may bring messages to a session that waits, and their JSON, in characters. */
const MAX_INPUTS = 100;
const MAX_CHARACTERS = 40 * 1024 * 1024;

/** The messages with which sessions begin, until their first turns are started. */
export class SessionInputs {
  readonly #cipher: Cipher;

  constructor(cipher: Cipher) {
    this.#cipher = cipher;
  }

  /** Adds messages after those that the session has. False if it has too many. The caller holds a lock on the session. */
  async add(db: Kysely<Tables>, sessionId: string, input: InputItem[]): Promise<boolean> {
    const { count, characters, last } = await db
      .selectFrom('session_inputs')
      .select((eb) => [
        eb.fn.countAll<number>().as('count'),
        eb.fn.coalesce(eb.fn.sum<number>(eb.fn('length', ['input'])), eb.lit(0)).as('characters'),
        eb.fn.coalesce(eb.fn.max<number>('number'), eb.lit(0)).as('last'),
      ])
      .where('session_id', '=', sessionId)
      .executeTakeFirstOrThrow();
    const number = last + 1;
    const sealed = this.#cipher.sealText(JSON.stringify(input), aadFor(sessionId, number));
    if (count >= MAX_INPUTS || (count > 0 && characters + sealed.length > MAX_CHARACTERS)) return false;
    await db.insertInto('session_inputs').values({ session_id: sessionId, number, input: sealed }).execute();
    return true;
  }

  async has(db: Kysely<Tables>, sessionId: string): Promise<boolean> {
    const row = await db
      .selectFrom('session_inputs')
      .select('number')
      .where('session_id', '=', sessionId)
      .limit(1)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** All messages, in their order. */
  async read(db: Kysely<Tables>, sessionId: string): Promise<InputItem[]> {
    const rows = await db
      .selectFrom('session_inputs')
      .select(['number', 'input'])
      .where('session_id', '=', sessionId)
      .orderBy('number')
      .execute();
    return rows.flatMap(({ number, input }) => {
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `add`
      return JSON.parse(this.#cipher.openText(input, aadFor(sessionId, number))) as InputItem[];
    });
  }
}

function aadFor(sessionId: string, number: number): string {
  return `session/${sessionId}/input/${number}`;
}
