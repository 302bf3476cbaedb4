import type { BlobStore } from '../blobs/blob-store.ts';
import { KEY_LIFETIME_MS } from '../catalog/idempotency.ts';
import type { Config } from '../config.ts';
import { REQUEST_LIFETIME_MS, type TurnIndex } from '../engine/turn-index.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import { archiveEnded, type Archiving, type Swept } from './archive-ended.ts';
import { collectBlobs } from './collect-blobs.ts';
import { expireSessions } from './expire-sessions.ts';
import { forgetLostTurns } from './forget-lost-turns.ts';
import { indexTurns, runningTurns } from './index-turns.ts';
import { removeDeleted } from './remove-deleted.ts';

/** From the end of a sweep to the next. */
const EVERY_MS = 3 * 60_000;

interface HousekeepingOptions extends Archiving {
  blobs: BlobStore;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  config: Pick<Config, 'turnSeconds'>;
}

/**
 * From time to time: archives ended turns that their sessions have not, because they were terminated, deleted or failed;
 * forgets those that Temporal has lost; deletes sessions that are kept no longer, and has deleted ones removed; deletes blobs that nothing refers to; forgets
 * old idempotency keys, and specs that nobody has. Every worker does it.
 */
export function startHousekeeping(options: HousekeepingOptions): { stop: () => Promise<void> } {
  const stop = new AbortController();
  let swept: Swept | undefined;
  /** Not known before the first sweep has listed the turns that run; from then on those of requests are in the index. */
  let unindexed: string[] | undefined;
  let next: NodeJS.Timeout | undefined;
  let running = run();
  return {
    stop: async () => {
      stop.abort();
      clearTimeout(next);
      await running;
    },
  };

  async function run(): Promise<void> {
    await sweep();
    if (stop.signal.aborted) return;
    next = setTimeout(() => {
      running = run();
    }, EVERY_MS);
  }

  async function sweep(): Promise<void> {
    const started = new Date();
    const when = { now: started, stop: stop.signal };
    // Whatever turn was asked for before this has ended.
    const before = new Date(started.getTime() - options.config.turnSeconds * 1000 - REQUEST_LIFETIME_MS).toISOString();
    try {
      await options.catalog.idempotency.forget(new Date(started.getTime() - KEY_LIFETIME_MS).toISOString());
      // Before the ended ones are listed: one that ends meanwhile is among those.
      unindexed ??= await runningTurns(options);
      swept = await archiveEnded(options, { ...when, last: swept });
      unindexed = await indexTurns(options, [...unindexed, ...swept.failed], stop.signal);
      await forgetLostTurns(options, { before, stop: stop.signal });
      // Only the index and the archive say what a session waits for, and to which blobs it refers.
      const isComplete = unindexed.length === 0;
      if (isComplete) await expireSessions(options, when);
      await removeDeleted(options, when);
      if (isComplete) await collectBlobs(options, when);
      await options.catalog.agents.forgetSpecs(before);
    } catch (error) {
      options.log.warn({ err: error }, 'housekeeping failed; it is tried again');
    }
  }
}
