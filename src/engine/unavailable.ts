import { isCatalogUnavailable } from '../catalog/database.ts';
import { isTemporalUnavailable } from '../temporal/errors.ts';

/** A disk that is full, failing, read-only or out of file handles. */
const DISK_ERRORS = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EMFILE', 'ENFILE']);

/** True for failures of what we stand on (Temporal, the catalog, the disk): nobody's fault, and worth another try. */
export function isUnavailable(error: unknown): boolean {
  if (isCatalogUnavailable(error) || isTemporalUnavailable(error)) return true;
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && DISK_ERRORS.has(error.code);
}
