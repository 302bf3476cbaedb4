import type { StoredFile } from '../core/records/input.ts';
import type { BlobStore } from './blob-store.ts';

export interface FileContent {
  name: string;
  mimeType: string;
  base64: string;
}

/** Larger files are never stored inside a record; clients download them by URL. */
const MAX_INLINE_FILE_BYTES = 64 * 1024;

/** A file with its content inside. */
export function inlineFile({ name, mimeType, base64 }: FileContent): StoredFile {
  return { type: 'file', name, mimeType, bytes: Buffer.byteLength(base64, 'base64'), base64 };
}

/**
 * Converts files to the form that records have: small ones inline, up to `maxInlineBytes` in total, the others in the
 * blob store.
 */
export async function storeFiles(
  files: FileContent[],
  { blobs, sessionId, maxInlineBytes }: { blobs: BlobStore; sessionId: string; maxInlineBytes: number },
): Promise<StoredFile[]> {
  let inlineBytesLeft = maxInlineBytes;
  return Promise.all(
    files.map(async ({ name, mimeType, base64 }): Promise<StoredFile> => {
      const content = Buffer.from(base64, 'base64');
      const file = { type: 'file' as const, name, mimeType, bytes: content.length };
      if (content.length <= Math.min(inlineBytesLeft, MAX_INLINE_FILE_BYTES)) {
        inlineBytesLeft -= content.length;
        return { ...file, base64 };
      }
      return { ...file, blob: await blobs.put(sessionId, content) };
    }),
  );
}
