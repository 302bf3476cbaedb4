import type { TurnContinuation, TurnStart } from '../core/history.ts';
import type { OpenThread, PendingCall } from '../core/records.ts';

/** A start of the rules before 3, which had what it resumes and carries in other fields. */
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
 * The start of a turn in the form of today. One of earlier rules does nothing more, since it has ended or is ended at the
 * start of the server: its log is read. What it has called before its last run is not closed in that log, only ended.
 */
export function currentStart(start: TurnStart | EarlierStart): TurnStart {
  if (!isEarlier(start)) return start;
  const { resumes: pending, threads = [], carry, ...rest } = start;
  if (!carry) {
    const isResumed = pending.length > 0 || threads.length > 0;
    return { ...rest, ...(isResumed && { resumes: { pending, ...(threads.length > 0 && { threads }) } }) };
  }
  const { step, threads: agents = [], actions, ...progress } = carry;
  const subAgents = agents.map(({ steps, refused = 0, ...agent }) => ({ agent, steps, refused }));
  return { ...rest, carry: { ...progress, ...actions, threads: [{ steps: step }, ...subAgents], results: [] } };
}

function isEarlier(start: TurnStart | EarlierStart): start is EarlierStart {
  return (start.rules ?? 0) < 3;
}
