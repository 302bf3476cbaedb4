import type { Kysely } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { Tables } from './schema.ts';

/** A key is remembered for this long. */
export const KEY_LIFETIME_MS = 24 * 3_600_000;

export interface Claim {
  /** Who may repeat the request, and on what. */
  scope: string;
  /** The client's key, or the fingerprint of its body. */
  key: string;
  /** An id that nothing has yet. */
  resourceId: string;
  /** The session that is created, or in which; empty for what belongs to none. */
  sessionId: string;
  bodyHash: string;
  now: string;
}

/** Remembers what a request has created, so that the same request again finds it instead of creating it twice. */
export class Idempotency {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  /**
   * The keys that stand for a body: the one to claim, and those under which it may have been claimed before the encryption
   * was changed. The hash of a short body would be guessed at once.
   */
  keysOf(bodyHash: string): string[] {
    return this.#cipher.namesOf(bodyHash, 'request').map((name) => `body:${name}`);
  }

  /**
   * Claims a key for a new resource. If the key is taken since `notBefore` or later, returns what it was claimed for;
   * an older claim is forgotten.
   */
  async claim(
    { scope, key, resourceId, sessionId, bodyHash, now }: Claim,
    notBefore: string,
  ): Promise<{ resourceId: string; isSameBody: boolean; isNew: boolean }> {
    // In one statement: between two of them somebody else could claim the key or give it free.
    const { resource_id: taken, body_hash: takenHash } = await this.#db
      .insertInto('idempotency')
      .values({
        scope,
        key,
        resource_id: resourceId,
        session_id: sessionId,
        body_hash: this.#cipher.nameOf(bodyHash, 'request'),
        created_at: now,
      })
      .onConflict((conflict) =>
        conflict.columns(['scope', 'key']).doUpdateSet((eb) => {
          const newIfOld = (column: 'resource_id' | 'session_id' | 'body_hash' | 'created_at') =>
            eb
              .case()
              .when('idempotency.created_at', '<', notBefore)
              .then(eb.ref(`excluded.${column}`))
              .else(eb.ref(`idempotency.${column}`))
              .end();
          return {
            resource_id: newIfOld('resource_id'),
            session_id: newIfOld('session_id'),
            body_hash: newIfOld('body_hash'),
            created_at: newIfOld('created_at'),
          };
        }),
      )
      .returning(['resource_id', 'body_hash'])
      .executeTakeFirstOrThrow();
    const isSame = this.#cipher.namesOf(bodyHash, 'request').includes(takenHash);
    return { resourceId: taken, isSameBody: isSame, isNew: taken === resourceId };
  }

  /** Which of some keys is taken since `notBefore` or later. */
  async taken({ scope, keys }: { scope: string; keys: string[] }, notBefore: string): Promise<string | undefined> {
    const row = await this.#db
      .selectFrom('idempotency')
      .select('key')
      .where('scope', '=', scope)
      .where('key', 'in', keys)
      .where('created_at', '>=', notBefore)
      .executeTakeFirst();
    return row?.key;
  }

  /** Makes a claim count from `now`, if the key still stands for this resource. */
  async renew({ scope, key, resourceId }: Pick<Claim, 'scope' | 'key' | 'resourceId'>, now: string): Promise<void> {
    await this.#db
      .updateTable('idempotency')
      .set({ created_at: now })
      .where('scope', '=', scope)
      .where('key', '=', key)
      .where('resource_id', '=', resourceId)
      .execute();
  }

  /** Gives a key free again, if it still stands for this resource. */
  async release({ scope, key, resourceId }: Pick<Claim, 'scope' | 'key' | 'resourceId'>): Promise<void> {
    await this.#db
      .deleteFrom('idempotency')
      .where('scope', '=', scope)
      .where('key', '=', key)
      .where('resource_id', '=', resourceId)
      .execute();
  }

  /** Forgets claims from before `time`. */
  async forget(time: string): Promise<void> {
    await this.#db.deleteFrom('idempotency').where('created_at', '<', time).execute();
  }
}
