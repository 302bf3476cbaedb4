import type { StoredFile } from '../core/records.ts';
import type { BlobStore } from './blob-store.ts';

export interface FileContent {
  name: string;
  mimeType: string;
  base64: string;
}

/** A file above this is never inside a record; clients get it by URL. */
const MAX_INLINE_FILE_BYTES = 64 * 1024;

/**
 * Keeps files in the form in which the log has them: small ones inside their record, as long as they take no more than
 * `maxInlineBytes` together, the others in the blob store.
 */
export async function storeFiles(
  files: FileContent[],
  { blobs, sessionId, maxInlineBytes }: { blobs: BlobStore; sessionId: string; maxInlineBytes: number },
): Promise<StoredFile[]> {
  let free = maxInlineBytes;
  return Promise.all(
    files.map(async ({ name, mimeType, base64 }): Promise<StoredFile> => {
      const content = Buffer.from(base64, 'base64');
      const file = { type: 'file' as const, name, mimeType, bytes: content.length };
      if (content.length <= Math.min(free, MAX_INLINE_FILE_BYTES)) {
        free -= content.length;
        return { ...file, base64 };
      }
      return { ...file, blob: await blobs.put(sessionId, content) };
    }),
  );
}
