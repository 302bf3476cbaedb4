import { sql } from 'kysely';
import { FOREVER } from './session-states.ts';
import { Store } from './store.ts';

/** How long a claim is valid, unless it lasts as long as its session. */
export const KEY_LIFETIME_MS = 24 * 3_600_000;

interface Claim {
  /** The caller that may repeat the request, and the resource it is made on. */
  scope: string;
  /** The client's idempotency key, or a name for the request's body (see `keysOf`). */
  key: string;
  /** A new, unused id. */
  resourceId: string;
  /** The session that is created, or in which the resource is created; empty if there is none. */
  sessionId: string;
  bodyHash: string;
  /** When its lifetime begins. `FOREVER`: it never becomes old, and is deleted with its session. */
  now: string;
}

/** Maps a request to the resource that it created, so that a repeated request finds it instead of creating another. */
export class Idempotency extends Store {
  /**
   * The keys for a request without an idempotency key, derived from its body: first the one to claim, then those under
   * which the body may have been claimed before the encryption keys changed. They are keyed, since a short body can be
   * guessed from a plain hash.
   */
  keysOf(bodyHash: string): string[] {
    return this.cipher.namesOf(bodyHash, 'request').map((name) => `body:${name}`);
  }

  /**
   * Claims a key for a new resource. If the key was claimed at `notBefore` or later, returns the resource of that
   * claim; an older claim is replaced.
   */
  async claim(
    { scope, key, resourceId, sessionId, bodyHash, now }: Claim,
    notBefore: string,
  ): Promise<{ resourceId: string; isSameBody: boolean; isNew: boolean }> {
    // In one statement: between two, another process could claim or release the key.
    const { resource_id: taken, body_hash: takenHash } = await this.db
      .insertInto('idempotency')
      .values({
        scope,
        key,
        resource_id: resourceId,
        session_id: sessionId,
        body_hash: this.cipher.nameOf(bodyHash, 'request'),
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
    const isSame = this.cipher.namesOf(bodyHash, 'request').includes(takenHash);
    return { resourceId: taken, isSameBody: isSame, isNew: taken === resourceId };
  }

  /** The key among `keys` that was claimed at `notBefore` or later, if any. */
  async taken({ scope, keys }: { scope: string; keys: string[] }, notBefore: string): Promise<string | undefined> {
    const row = await this.db
      .selectFrom('idempotency')
      .select('key')
      .where('scope', '=', scope)
      .where('key', 'in', keys)
      .where('created_at', '>=', notBefore)
      .executeTakeFirst();
    return row?.key;
  }

  /** Restarts the lifetime of a claim at `now`, if the key still belongs to this resource. */
  async renew({ scope, key, resourceId }: Pick<Claim, 'scope' | 'key' | 'resourceId'>, now: string): Promise<void> {
    await this.db
      .updateTable('idempotency')
      .set({ created_at: now })
      .where('scope', '=', scope)
      .where('key', '=', key)
      .where('resource_id', '=', resourceId)
      .execute();
  }

  /** Releases a key, if it still belongs to this resource. */
  async release({ scope, key, resourceId }: Pick<Claim, 'scope' | 'key' | 'resourceId'>): Promise<void> {
    await this.db
      .deleteFrom('idempotency')
      .where('scope', '=', scope)
      .where('key', '=', key)
      .where('resource_id', '=', resourceId)
      .execute();
  }

  /** Deletes the claims made before `time`. */
  async forget(time: string): Promise<void> {
    await this.db
      .deleteFrom('idempotency')
      .where('created_at', '<', time)
      // A literal, so that SQLite uses the index, which has no claim that is kept for ever.
      .where('created_at', '<', sql.lit(FOREVER))
      .execute();
  }
}
