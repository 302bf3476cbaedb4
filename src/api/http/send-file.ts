import type { Response } from 'express';
import { z } from 'zod';
import { BlobNotFound, type BlobStore } from '../../blobs/blob-store.ts';
import { MEDIA_TYPE } from '../../spec/bounds.ts';
import { ApiError } from './errors.ts';

interface StoredFile {
  blobs: Pick<BlobStore, 'get'>;
  sessionId: string;
  /** From the URL. */
  blob: string;
  name: string;
  type: string;
}

/** The name and type of a file, from the URL that a face has made for it. */
export function fileQuery(name = z.string()) {
  const type = z.string().regex(new RegExp(`^${MEDIA_TYPE}$`));
  return z.object({
    name: name.default('file').describe('the name under which the file is saved'),
    type: type.default('application/octet-stream').describe('its media type'),
  });
}

export const fileResponse = { written: { '*/*': { schema: z.unknown(), example: 'late orders: 17, 23' } } };

/** Makes a response a download. Users, tools and code write these files: a browser must not run their content. */
export function asDownload(response: Response, { name, type }: Pick<StoredFile, 'name' | 'type'>): void {
  response.attachment(name);
  response.set({ 'content-type': type, 'content-security-policy': "default-src 'none'; sandbox" });
}

/** Sends the bytes of a file as a download. @throws ApiError `file_not_found` */
export async function sendFile(response: Response, file: StoredFile): Promise<void> {
  const bytes = await bytesOf(file);
  asDownload(response, file);
  response.set('cache-control', 'private, max-age=31536000, immutable').send(bytes);
}

async function bytesOf({ blobs, sessionId, blob }: StoredFile): Promise<Buffer> {
  try {
    return await blobs.get(sessionId, blob);
  } catch (error) {
    if (!(error instanceof BlobNotFound)) throw error;
    throw new ApiError('file_not_found', 'there is no such file', { cause: error });
  }
}
