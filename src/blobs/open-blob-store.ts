import path from 'node:path';
import type { Cipher } from '../encryption/cipher.ts';
import type { BlobStore } from './blob-store.ts';
import { FolderBlobStore } from './folder-blob-store.ts';
import type { S3Location } from './s3-blob-store.ts';

/** Opens the blob store of a server: the folder in its data folder, or a bucket of an S3-compatible store. */
export async function openBlobStore(
  { dataDir, blobs }: { dataDir: string; blobs: S3Location | undefined },
  cipher: Cipher,
): Promise<BlobStore> {
  if (!blobs) return new FolderBlobStore(path.join(dataDir, 'blobs'), cipher);
  // The SDK is loaded only where it is used: it would make every start slower.
  const { S3BlobStore } = await import('./s3-blob-store.ts');
  return new S3BlobStore(blobs, cipher);
}
