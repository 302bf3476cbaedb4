import { setTimeout as sleep } from 'node:timers/promises';
import { KEY_LIFETIME_MS } from '../catalog/idempotency.ts';
import { backoffMs } from '../lib/backoff.ts';
import { REQUEST_LIFETIME_MS } from '../engine/turn-index.ts';
import { startRemoval, startSession } from '../engine/session-commands.ts';
import { archiveEnded, type Swept } from './archive-ended.ts';
import { FEATURES } from '../features/features.ts';
import { collectBlobs } from './collect-blobs.ts';
import { deriveStates } from './derive-states.ts';
import { deleteFinished, expireSessions } from './expire-sessions.ts';
import type { Housekeeping, Sweep } from './housekeeping.ts';
import { forgetLostTurns, indexTurns, runningTurns } from './index-turns.ts';

/** From the end of a complete sweep to the next. */
const EVERY_MS = 3 * 60_000;
/** From the end of an incomplete sweep to the next; doubled for each further incomplete one in a row. */
const FIRST_RETRY_MS = 10_000;

/** How many deleted sessions are read at once. */
const SESSION_BATCH_SIZE = 100;

/**
 * Sweeps periodically, in every worker, in this order:
 *
 * - sweeps for the features, in the order of `FEATURES`: first what does not need Temporal,
 * - deletes old idempotency keys,
 * - adds up what subjects store,
 * - archives ended turns that their workers have not archived, because these died, or the sessions were terminated,
 *   deleted or failed,
 * - indexes running turns, and removes turns that Temporal has lost,
 * - starts sessions in whose queues turns wait,
 * - sweeps for the features what follows ended turns,
 * - deletes sessions whose retention period has ended, and removes the data of deleted ones,
 * - deletes blobs without a reference, and unused specs.
 */
export function startHousekeeping(options: Housekeeping): { stop: () => Promise<void> } {
  const stop = new AbortController();
  const began = new Date();
  let swept: Swept | undefined;
  /** Running turns that may be missing from the index; unknown before the first sweep. Later turns are indexed on request. */
  let unindexed: string[] | undefined;
  /** The number of incomplete sweeps in a row. */
  let incomplete = 0;
  let next: NodeJS.Timeout | undefined;
  let running = run();
  const deriving = derive();
  return {
    stop: async () => {
      stop.abort();
      clearTimeout(next);
      await Promise.all([running, deriving]);
    },
  };

  /** Beside the sweeps, which must not wait for it: after an upgrade it has all sessions to read. */
  async function derive(): Promise<void> {
    while (!stop.signal.aborted) {
      try {
        await deriveStates(options, stop.signal);
      } catch (error) {
        options.log.warn({ err: error }, 'states of sessions could not be derived; retrying');
      }
      await sleep(EVERY_MS, undefined, { signal: stop.signal }).catch(() => undefined);
    }
  }

  async function run(): Promise<void> {
    incomplete = (await sweep()) ? 0 : incomplete + 1;
    if (stop.signal.aborted) return;
    const waitMs = incomplete === 0 ? EVERY_MS : backoffMs(incomplete - 1, { first: FIRST_RETRY_MS, max: EVERY_MS });
    next = setTimeout(() => {
      running = run();
    }, waitMs);
  }

  /** Returns whether the sweep was complete. */
  async function sweep(): Promise<boolean> {
    const started = new Date();
    const when = { now: started, began, stop: stop.signal };
    // All turns that were requested before this time have ended.
    const before = new Date(started.getTime() - options.config.turnSeconds * 1000 - REQUEST_LIFETIME_MS).toISOString();
    try {
      for (const feature of FEATURES) await feature.sweep?.(options, when);
      await options.catalog.idempotency.forget(new Date(started.getTime() - KEY_LIFETIME_MS).toISOString());
      await options.catalog.storedBytes.addChanges(stop.signal);
      // Listed before the ended turns, so that a turn that ends in between is in one of the lists.
      unindexed ??= await runningTurns(options);
      swept = await archiveEnded(options, { ...when, last: swept });
      unindexed = await indexTurns(options, [...unindexed, ...swept.failed], stop.signal);
      await forgetLostTurns(options, { before, stop: stop.signal });
      await resumeQueues(options, stop.signal);
      for (const feature of FEATURES) await feature.sweepAfterTurns?.(options, when);
      // Only the index and the archive contain whether a session is waiting, and which blobs it refers to.
      const isComplete = unindexed.length === 0;
      if (isComplete) await expireSessions(options, when);
      if (isComplete) await deleteFinished(options, when);
      await removeDeleted(options, when);
      if (isComplete) await collectBlobs(options, when);
      // A turn that is paused may be older, and still needs its spec.
      const [oldest] = await options.catalog.turns.unarchived();
      const unused = oldest && oldest.created_at < before ? oldest.created_at : before;
      await options.catalog.agents.forgetSpecs(unused, started.toISOString());
      return isComplete;
    } catch (error) {
      options.log.warn({ err: error }, 'housekeeping failed; retrying');
      return false;
    }
  }
}

/**
 * Starts the sessions in whose queues turns wait, unless they run. If the workflow of a session has failed, or was
 * terminated by an operator, otherwise only its next command would start it again, which may never arrive.
 */
async function resumeQueues({ catalog, ...starting }: Housekeeping, stop: AbortSignal): Promise<void> {
  for (const sessionId of await catalog.turns.sessionsWithQueue()) {
    if (stop.aborted) return;
    await startSession(starting, sessionId);
  }
}

/** Starts the removals that are due: those that were not started, and those that are to be repeated. */
async function removeDeleted(
  { catalog, ...removing }: Pick<Housekeeping, 'catalog' | 'client' | 'taskQueue'>,
  { now, stop }: Sweep,
): Promise<void> {
  let after: Parameters<typeof catalog.sessions.toRemove>[1];
  do {
    const due = await catalog.sessions.toRemove(now.toISOString(), after, SESSION_BATCH_SIZE);
    for (const { id } of due) {
      if (stop.aborted) return;
      await startRemoval(removing, id);
    }
    const last = due.at(-1);
    after = last && { removalAt: last.removal_at ?? '', id: last.id };
  } while (after);
}
