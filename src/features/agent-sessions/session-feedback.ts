import { Store } from '../../catalog/store.ts';

interface Feedback {
  isSuccess: boolean;
  message: string | null;
}

/** The place of feedback on a session as a whole. */
const WHOLE_SESSION = -1;

/** What the owners of sessions think of them, and of single events in them. */
export class SessionFeedback extends Store {
  /** Stores feedback in place of an earlier one on the same event, or without an event on the same session. */
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
