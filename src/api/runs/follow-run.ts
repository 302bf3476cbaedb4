import type { Cursor } from '../../core/cursor.ts';
import type { LogEntry } from '../../core/records/log.ts';
import type { TurnCreated } from '../../core/records/turn.ts';
import type { FoundRun } from '../../features/run-support/runs.ts';
import { NEVER_ABORTED } from '../../lib/abort.ts';
import type { ApiContext } from '../http/context.ts';
import { loadFiles } from './load-files.ts';
import { runLimitsOf } from './run-limits.ts';
import { RunOutput } from './run-output.ts';

export type FollowServices = Pick<ApiContext, 'catalog' | 'logs' | 'tails'> & {
  blobs: Pick<ApiContext['blobs'], 'get'>;
};

export interface FollowRunOptions {
  /** How long to wait for the end of the run, or for its next pause. */
  waitMs: number;
  /** Waits for the end only. */
  ignoresPauses?: boolean;
  /** Ends the waiting. */
  signal?: AbortSignal;
  /** Called when the run has been read up to now, before anything is waited for. */
  onRead?: () => void;
  /** The first record of the turn, if this process has just started it. */
  created?: TurnCreated | undefined;
}

export interface FollowedRun {
  output: RunOutput;
  /** The cursor of a client that has all of the output. */
  cursor: Cursor;
}

/**
 * Reads a run, and waits until it has ended or pauses; for at most `waitMs`.
 * @throws TurnNotFound if it has never begun, or was deleted
 */
export async function followRun(
  { catalog, logs, tails, blobs }: FollowServices,
  { session, turnId }: Pick<FoundRun, 'session' | 'turnId'>,
  { waitMs, ignoresPauses = false, signal = NEVER_ABORTED, onRead, created }: FollowRunOptions,
): Promise<FollowedRun> {
  const output = new RunOutput(runLimitsOf(await catalog.agents.spec(session.spec_hash)));
  const deadline = Date.now() + waitMs;
  let [ordinal, completed] = [0, 0];
  const add = async (entries: readonly LogEntry[]): Promise<void> => {
    for (const entry of entries) {
      completed = output.feed(await loadFiles(entry.record, { blobs, sessionId: session.id })).length;
      ordinal = entry.ordinal;
    }
  };
  const readLog = async (): Promise<void> => {
    for await (const entries of logs.read(turnId, { from: ordinal + 1 })) await add(entries);
  };
  if (!created) await readLog();
  onRead?.();
  const isSettled = () => !output.isOpen || (!ignoresPauses && output.status === 'requires_action');
  const isOver = () => isSettled() || Date.now() >= deadline || signal.aborted;
  const followed = () => ({ output, cursor: { ordinal, frame: completed } });
  if (isOver()) return followed();
  const lease = tails.lease(turnId);
  try {
    lease.run(created);
    // A run that has not begun has no entries.
    const { tail } = lease;
    while (!isOver()) {
      if (tail.failure !== undefined) throw tail.failure;
      if (tail.feed.firstOrdinal > ordinal + 1) await readLog();
      else await add(tail.feed.entries(ordinal + 1));
      if (!isOver()) await tail.reaches(ordinal + 1, deadline - Date.now(), signal);
    }
    return followed();
  } finally {
    lease.release();
  }
}
