import type { Response } from 'express';
import { BlobNotFound, type BlobStore } from '../../blobs/blob-store.ts';
import { ApiError } from './errors.ts';

interface StoredFile {
  blobs: Pick<BlobStore, 'get'>;
  sessionId: string;
  /** From the URL. */
  blob: string;
  name: string;
  type: string;
}

/** Sends the bytes of a file as a download. @throws ApiError `file_not_found` */
export async function sendFile(response: Response, file: StoredFile): Promise<void> {
  const bytes = await bytesOf(file);
  response.attachment(file.name);
  response.set({
    'content-type': file.type,
    // Users and tools write these files: a browser must not run their content.
    'content-security-policy': "default-src 'none'; sandbox",
    'cache-control': 'private, max-age=31536000, immutable',
  });
  response.send(bytes);
}

async function bytesOf({ blobs, sessionId, blob }: StoredFile): Promise<Buffer> {
  try {
    return await blobs.get(sessionId, blob);
  } catch (error) {
    if (!(error instanceof BlobNotFound)) throw error;
    throw new ApiError('file_not_found', 'there is no such file', { cause: error });
  }
}
