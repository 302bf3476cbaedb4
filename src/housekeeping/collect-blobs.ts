import type { Logger } from 'pino';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { REQUEST_LIFETIME_MS, type TurnIndex } from '../engine/turn-index.ts';
import { isUnavailable } from '../engine/unavailable.ts';

interface Collecting {
  catalog: Catalog;
  blobs: BlobStore;
  turnIndex: TurnIndex;
  log: Logger;
}

/** Sessions per sweep; the next sweep takes the remaining ones. */
const MAX_SESSIONS = 1_000;

/** Deleting a batch blocks its session, and with SQLite the whole catalog. */
const BLOB_BATCH_SIZE = 100;

/**
 * Deletes blobs that no record refers to: those of rejected turns, and of requests and activities that failed half-way.
 * A session is checked a day after it had a turn.
 */
export async function collectBlobs(
  context: Collecting,
  { now, stop }: { now: Date; stop: AbortSignal },
): Promise<void> {
  const { catalog, log } = context;
  const before = new Date(now.getTime() - REQUEST_LIFETIME_MS);
  for (const sessionId of await catalog.blobReferences.unswept(before.toISOString(), MAX_SESSIONS)) {
    if (stop.aborted) return;
    try {
      await collect(context, sessionId, { now: now.toISOString(), before });
    } catch (error) {
      if (isUnavailable(error)) throw error;
      // A session that cannot be read must not block the others.
      log.warn({ sessionId, err: error }, 'the blobs of a session could not be collected; it is retried');
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
  const stored = await blobs.list(sessionId);
  const referenced = await catalog.blobReferences.of(sessionId);
  const garbage = stored.filter(({ name }) => !referenced.has(name));
  const old = garbage.filter(({ storedAt }) => storedAt < before.getTime()).map(({ name }) => name);
  for (let from = 0; from === 0 || from < old.length; from += BLOB_BATCH_SIZE) {
    const isLast = from + BLOB_BATCH_SIZE >= old.length && old.length === garbage.length;
    await catalog.blobReferences.sweep(
      sessionId,
      { blobs: old.slice(from, from + BLOB_BATCH_SIZE), now, isLast },
      async (names) => {
        await blobs.delete(sessionId, names);
        if (names.length > 0) log.info({ sessionId, blobs: names.length }, 'blobs that nothing refers to were deleted');
      },
    );
  }
}
