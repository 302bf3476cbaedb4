import type { Kysely } from 'kysely';
import type { Outbox } from './outbox.ts';
import type { Tables } from './schema.ts';
import { lockSession } from './sessions.ts';
import { idleEnded } from './state-changes.ts';

const BATCH_SIZE = 100;

/** Tells webhooks of the ends of idle timeouts, which no turn brings. */
export class IdleTimeouts {
  readonly #db: Kysely<Tables>;
  readonly #outbox: Outbox;

  constructor(db: Kysely<Tables>, outbox: Outbox) {
    this.#db = db;
    this.#outbox = outbox;
  }

  /** Tells all that have ended by now, each once, whichever process is the first. */
  async tell(now: string, stop: AbortSignal): Promise<void> {
    for (;;) {
      const due = await this.#db
        .selectFrom('session_requests')
        .select('session_id')
        .where('idle_ends_at', '<=', now)
        .orderBy('idle_ends_at')
        .limit(BATCH_SIZE)
        .execute();
      for (const { session_id: sessionId } of due) {
        if (stop.aborted) return;
        await this.#tell(sessionId, now);
      }
      if (due.length < BATCH_SIZE) return;
    }
  }

  async #tell(sessionId: string, now: string): Promise<void> {
    await this.#outbox.transaction(async (db, _emit, tell) => {
      await lockSession(db, sessionId);
      const { numUpdatedRows } = await db
        .updateTable('session_requests')
        .set({ idle_ends_at: null })
        .where('session_id', '=', sessionId)
        .where('idle_ends_at', '<=', now)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return;
      // Also noted if there is no webhook: one that is registered later hears that the session had ended.
      const changes = await idleEnded(db, sessionId);
      tell(() => Promise.resolve(changes));
    });
  }
}
