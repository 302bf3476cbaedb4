import type { BlobStore } from './blob-store.ts';

/** The store, with `count` called for each blob once it is stored, so that a crash leaves none that is counted only. */
export function countedBlobs(
  store: BlobStore,
  count: (sessionId: string, blob: string, bytes: number) => Promise<void>,
): BlobStore {
  return {
    put: async (sessionId, bytes) => {
      const blob = await store.put(sessionId, bytes);
      await count(sessionId, blob, bytes.length);
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
