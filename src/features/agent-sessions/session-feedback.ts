import { Store } from '../../catalog/store.ts';

interface Feedback {
  isSuccess: boolean;
  message: string | null;
}

/** The value of the column `place` for feedback on a whole session. */
const WHOLE_SESSION = -1;

/** The feedback of owners on their sessions, and on single events. */
export class SessionFeedback extends Store {
  /** Stores or replaces the feedback on an event or, without `event`, on the whole session. */
  async put(on: { sessionId: string; event?: number }, feedback: Feedback, now: string): Promise<void> {
    const place = on.event ?? WHOLE_SESSION;
    const row = {
      success: feedback.isSuccess ? 1 : 0,
      message: feedback.message === null ? null : this.cipher.sealText(feedback.message, aadFor(on.sessionId, place)),
      given_at: now,
    };
    await this.db
      .insertInto('session_feedback')
      .values({ session_id: on.sessionId, place, ...row })
      .onConflict((conflict) => conflict.columns(['session_id', 'place']).doUpdateSet(row))
      .execute();
  }
}

function aadFor(sessionId: string, place: number): string {
  return `session/${sessionId}/feedback/${place}`;
}
