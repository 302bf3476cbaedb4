import { BlobsUnavailable } from '../blobs/blob-store.ts';
import { isCatalogUnavailable } from '../catalog/database.ts';
import { isTemporalUnavailable } from '../temporal/errors.ts';
import { EngineError } from './errors.ts';

/** Codes of a disk that is full, failing, read-only or out of file handles. */
const DISK_ERRORS = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EMFILE', 'ENFILE']);

/** Whether the error is an outage of Temporal, the catalog, the blob store or the disk: a retry may succeed later. */
export function isUnavailable(error: unknown): boolean {
  if (isCatalogUnavailable(error) || isTemporalUnavailable(error) || error instanceof BlobsUnavailable) return true;
  if (error instanceof EngineError) return error.code === 'unavailable';
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && DISK_ERRORS.has(error.code);
}
