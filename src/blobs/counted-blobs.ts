import type { Logger } from 'pino';
import { withTimeout } from '../lib/timeout.ts';
import type { BlobStore } from './blob-store.ts';

/** How long a running turn waits until its blob is counted, in milliseconds: the catalog may be unavailable. */
const COUNT_MS = 1_000;

/** Notes that a session stores a blob, which it may have stored before. */
type Count = (sessionId: string, blob: string, bytes: number) => Promise<void>;

/**
 * The store, with `count` called for each blob once it is stored. If that fails, the blob is stored nevertheless: the
 * result of a tool call must not be lost because the catalog is unavailable.
 */
export function countedBlobs(store: BlobStore, { count, log }: { count: Count; log: Logger }): BlobStore {
  return {
    put: async (sessionId, bytes) => {
      const blob = await store.put(sessionId, bytes);
      await withTimeout(COUNT_MS, count(sessionId, blob, bytes.length)).catch((error: unknown) =>
        log.warn({ sessionId, bytes: bytes.length, err: error }, 'a blob does not count as stored'),
      );
      return blob;
    },
    get: (sessionId, blob, maxBytes) => store.get(sessionId, blob, maxBytes),
    list: (sessionId) => store.list(sessionId),
    delete: (sessionId, names) => store.delete(sessionId, names),
    deleteAll: (sessionId) => store.deleteAll(sessionId),
    check: () => store.check(),
    close: () => store.close(),
  };
}
