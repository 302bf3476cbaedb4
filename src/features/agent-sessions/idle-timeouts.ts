import { lockSession } from '../../catalog/sessions.ts';
import { sessionChanged } from '../../catalog/session-states.ts';
import { changeRows, Store } from '../../catalog/store.ts';

const BATCH_SIZE = 100;

/** Emits the end of idle timeouts, which no turn causes. */
export class IdleTimeouts extends Store {
  /** Emits the change of each session whose timeout has ended by `now`; concurrent processes emit it only once. */
  async end(now: string, stop: AbortSignal): Promise<void> {
    for (;;) {
      const due = await this.db
        .selectFrom('session_requests')
        .select('session_id')
        .where('idle_ends_at', '<=', now)
        .orderBy('idle_ends_at')
        .limit(BATCH_SIZE)
        .execute();
      for (const { session_id: sessionId } of due) {
        if (stop.aborted) return;
        await this.#end(sessionId, now);
      }
      if (due.length < BATCH_SIZE) return;
    }
  }

  async #end(sessionId: string, now: string): Promise<void> {
    await this.context.outbox.transaction(async (db, emit) => {
      await lockSession(db, { id: sessionId });
      const request = db.updateTable('session_requests').where('session_id', '=', sessionId);
      const isEnded = await changeRows(request.set({ idle_ends_at: null }).where('idle_ends_at', '<=', now));
      if (isEnded) emit(...(await sessionChanged(db, sessionId)));
    });
  }
}
