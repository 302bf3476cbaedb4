import { REQUEST_LIFETIME_MS } from '../engine/turn-index.ts';
import { isUnavailable } from '../engine/unavailable.ts';
import type { Housekeeping, Sweep } from './housekeeping.ts';

type Collecting = Pick<Housekeeping, 'catalog' | 'blobs' | 'turnIndex' | 'log'>;

/** Sessions per sweep; the next sweep takes the remaining ones. */
const MAX_SESSIONS = 1_000;

/** Deleting a batch blocks its session, and with SQLite the whole catalog. */
const BLOB_BATCH_SIZE = 100;

/**
 * Deletes blobs that no record refers to: those of rejected turns, and of requests and activities that failed half-way.
 * A session is checked a day after it had a turn.
 */
export async function collectBlobs(context: Collecting, { now, stop }: Sweep): Promise<void> {
  const { catalog, log } = context;
  const before = new Date(now.getTime() - REQUEST_LIFETIME_MS);
  for (const sessionId of await catalog.blobReferences.unswept(before.toISOString(), MAX_SESSIONS)) {
    if (stop.aborted) return;
    try {
      await collect(context, sessionId, { now: now.toISOString(), before });
    } catch (error) {
      if (isUnavailable(error)) throw error;
      // A session that cannot be read must not block the others.
      log.warn({ sessionId, err: error }, 'the blobs of a session could not be collected; retrying');
      await catalog.blobReferences.postpone(sessionId, now.toISOString());
    }
  }
}

async function collect(
  { catalog, blobs, turnIndex, log }: Collecting,
  sessionId: string,
  { now, before }: { now: string; before: Date },
): Promise<void> {
  await turnIndex.reconcileRequests(sessionId);
  const sweep = (batch: string[], isLast: boolean) =>
    catalog.blobReferences.sweep(sessionId, { blobs: batch, now, isLast }, async (names) => {
      await blobs.delete(sessionId, names);
      log.info({ sessionId, blobs: names.length }, 'blobs that nothing refers to were deleted');
    });
  const referenced = await catalog.blobReferences.of(sessionId);
  let isAllOld = true;
  for await (const page of blobs.list(sessionId)) {
    const garbage = page.filter(({ name }) => !referenced.has(name));
    const old = garbage.filter(({ storedAt }) => storedAt < before.getTime()).map(({ name }) => name);
    if (old.length < garbage.length) isAllOld = false;
    for (let from = 0; from < old.length; from += BLOB_BATCH_SIZE) {
      const isSwept = await sweep(old.slice(from, from + BLOB_BATCH_SIZE), false);
      if (!isSwept) return;
    }
  }
  await sweep([], isAllOld);
}
