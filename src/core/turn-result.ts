import { withRequesters } from './deciders.ts';
import type { TurnResult } from './history.ts';
import type { Waiting } from './records/pending.ts';
import type { CancelReason } from './records/turn.ts';
import type { ThreadEnd } from './threads.ts';

/** How the root thread of a run has stopped working. */
export type ThreadResult =
  | Exclude<ThreadEnd, { status: 'waiting' }>
  /** Calls wait for a human or a client. */
  | ({ status: 'waiting' } & Waiting)
  /** The run should continue as new; no activity of the thread or of its sub-agents is running. */
  | { status: 'continue' };

/**
 * How a turn ends, from the end of its root thread and why it was cancelled, if it was. A cancelled turn ends as
 * cancelled even if its last step had a result, unless the turn was done before. `authors` are the ids of the subjects
 * that have sent the turn messages: they are requesters of its calls.
 */
export function turnResult(
  end: ThreadResult,
  reason: CancelReason | undefined,
  authors: readonly string[],
): TurnResult {
  if (end.status === 'done') return { status: 'done', pending: [] };
  if (end.status === 'waiting') {
    const pending = end.pending.map((call) => withRequesters(call, authors));
    return { status: 'done', ...waitingOf({ ...end, pending }) };
  }
  if (reason) return { status: 'cancelled', reason };
  return end.status === 'error' ? end : { status: 'error', message: 'The turn stopped without a reason.' };
}

/** Whether anything waits. */
export function isAnyOpen({ pending, threads = [] }: Waiting): boolean {
  return pending.length > 0 || threads.length > 0;
}

export function waitingOf({ pending, threads = [] }: Waiting): Waiting {
  return { pending, ...(threads.length > 0 && { threads }) };
}
