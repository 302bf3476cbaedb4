import type { LogEntry, TurnCreated } from '../../core/records.ts';
import type { Run } from '../../engine/runs.ts';
import { NEVER } from '../../lib/abort.ts';
import type { ApiContext } from '../http/context.ts';
import { loadFiles } from './load-files.ts';
import { limitsOf } from './run-limits.ts';
import { RunOutput } from './run-output.ts';

export type FollowServices = Pick<ApiContext, 'catalog' | 'logs' | 'tails' | 'blobs'>;

export interface FollowOptions {
  /** How long to wait for the end of the run, or for its next pause. */
  waitMs: number;
  /** Ends the waiting. */
  signal?: AbortSignal;
  /** The first record of the turn, if this process has just started it. */
  created?: TurnCreated | undefined;
}

/**
 * Reads a run, and waits until it has ended or pauses; for at most `waitMs`.
 * @throws TurnNotFound if it has never begun, or was deleted
 */
export async function followRun(
  { catalog, logs, tails, blobs }: FollowServices,
  { session, turnId }: Pick<Run, 'session' | 'turnId'>,
  { waitMs, signal = NEVER, created }: FollowOptions,
): Promise<RunOutput> {
  const output = new RunOutput(limitsOf(await catalog.agents.spec(session.spec_hash)));
  const deadline = Date.now() + waitMs;
  let ordinal = 0;
  const add = async (entries: readonly LogEntry[]): Promise<void> => {
    for (const entry of entries) {
      output.feed(await loadFiles(entry.record, { blobs, sessionId: session.id }));
      ordinal = entry.ordinal;
    }
  };
  const readLog = async (): Promise<void> => {
    for await (const entries of logs.read(turnId, { from: ordinal + 1 })) await add(entries);
  };
  if (!created) await readLog();
  const isOver = () => output.status !== 'running' || Date.now() >= deadline || signal.aborted;
  if (isOver()) return output;
  const lease = tails.lease(turnId);
  try {
    lease.run(created);
    const { tail } = lease;
    await tail.ready;
    while (!isOver()) {
      if (tail.failure !== undefined) throw tail.failure;
      if (tail.feed.firstOrdinal > ordinal + 1) await readLog();
      else await add(tail.feed.entries(ordinal + 1));
      if (!isOver()) await tail.reaches(ordinal + 1, deadline - Date.now(), signal);
    }
    return output;
  } finally {
    lease.release();
  }
}
