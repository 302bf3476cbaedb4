import type { Transaction } from 'kysely';
import { hasAnswer, type CancelReason, type TurnDone } from '../core/records.ts';
import type { Tables, TurnRow } from './schema.ts';

/**
 * How a turn has ended. It never changes. `waiting`: calls are pending on it; `out_of_time`: it was asked for its answer
 * at its time limit, and has given none.
 */
export type TurnEnd = 'answered' | 'unanswered' | 'out_of_time' | 'waiting' | 'error' | CancelReason;

/** Later than any other time. */
export const FOREVER = '9999-12-31T23:59:59.999Z';

function turnEnd({ end, limit }: TurnDone): TurnEnd {
  if (end.status === 'error') return 'error';
  if (end.status === 'cancelled') return end.reason;
  if (end.requiredActions.length > 0) return 'waiting';
  if (hasAnswer(end)) return 'answered';
  return limit === 'time' ? 'out_of_time' : 'unanswered';
}

/**
 * Notes the end of a turn with its session, in the transaction that archives it, unless another turn has followed: lists
 * of sessions, the limit on their number and their deletion find the ends by indexes, and read no logs.
 */
export async function recordEnd(
  db: Transaction<Tables>,
  { session_id: sessionId, sequence, created_at: createdAt }: TurnRow,
  done: TurnDone,
): Promise<void> {
  // A turn that has ended in the queue of its session has no sequence, and changes nothing.
  if (sequence === null) return;
  const follower = await db
    .selectFrom('turns')
    .select('id')
    .where('session_id', '=', sessionId)
    .where('sequence', '>', sequence)
    .limit(1)
    .executeTakeFirst();
  if (follower) return;
  const { at } = done;
  const end = turnEnd(done);
  await db
    .updateTable('sessions')
    .set({ last_turn_at: createdAt, last_end: end, ended_at: at })
    .where('id', '=', sessionId)
    .execute();
  // Changes nothing, but locks the row: it may be cancelled at this moment.
  const request = await db
    .updateTable('session_requests')
    .set({ session_id: sessionId })
    .where('session_id', '=', sessionId)
    .returning(['idle_timeout_s', 'delete_after_min', 'cancelled_at'])
    .executeTakeFirst();
  if (!request) return;
  const isCancelled = (request.cancelled_at ?? '') >= createdAt;
  const waitsUntil = isCancelled ? null : waitOf(end, at, request.idle_timeout_s);
  const finishedAt = isOpen(end) && !isCancelled ? null : (waitsUntil ?? at);
  await db
    .updateTable('session_requests')
    .set({
      waits_until: waitsUntil,
      idle_ends_at: end === 'answered' ? waitsUntil : null,
      delete_at: finishedAt && deletionOf(finishedAt, request.delete_after_min),
    })
    .where('session_id', '=', sessionId)
    .execute();
}

/** When a session that has ended may be deleted; null: never. */
export function deletionOf(finishedAt: string, afterMinutes: number | null): string | null {
  return afterMinutes === null ? null : addSeconds(finishedAt, afterMinutes * 60);
}

function waitOf(end: TurnEnd, at: string, idleSeconds: number | null): string | null {
  if (end === 'waiting') return FOREVER;
  return end === 'answered' && idleSeconds !== null ? addSeconds(at, idleSeconds) : null;
}

/** Whether something follows the turn in any case. */
function isOpen(end: TurnEnd): boolean {
  return end === 'waiting' || end === 'cancelled-for-next-turn';
}

function addSeconds(at: string, seconds: number): string {
  return new Date(Date.parse(at) + seconds * 1000).toISOString();
}
