import type { TurnContinuation, TurnStart } from './history.ts';
import type { PendingCall } from './records/pending.ts';
import type { OpenThread } from './records/threads.ts';
import { resumedThread } from './threads.ts';
import { isAnyOpen, waitingOf } from './turn-result.ts';

/** A start of the rules before 3, with other fields for what it resumes and carries. */
export interface EarlierStart extends Omit<TurnStart, 'resumes' | 'carry'> {
  resumes: PendingCall[];
  threads?: OpenThread[];
  carry?: Omit<TurnContinuation, 'threads' | 'results'> & {
    step: number;
    threads?: OpenThread[];
    actions?: Partial<TurnContinuation>;
  };
}

/**
 * The start of a turn in its current form: a worker of an earlier version may have written it. Turns of earlier rules
 * have ended, or are ended when the server starts, so only the log of a run that continues another is read: open work
 * is ended in it, but its calls are not closed.
 */
export function currentStart(start: TurnStart | EarlierStart): TurnStart {
  if (!isEarlier(start)) return start;
  const { resumes: pending, threads = [], carry, ...rest } = start;
  if (!carry) {
    const waiting = { pending, threads };
    return { ...rest, ...(isAnyOpen(waiting) && { resumes: waitingOf(waiting) }) };
  }
  const { step, threads: agents = [], actions, ...progress } = carry;
  const all = [{ steps: step }, ...agents.map(resumedThread)];
  return { ...rest, carry: { ...progress, ...actions, threads: all, results: [] } };
}

function isEarlier(start: TurnStart | EarlierStart): start is EarlierStart {
  return Array.isArray(start.resumes);
}
