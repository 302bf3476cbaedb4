import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { errorMessage, StartupError } from './errors.ts';

/** Another Everturn process uses the data folder. */
export class DataDirInUseError extends StartupError {}

const SQLITE_BUSY = 5;

/** Keeps the databases reachable: a database that is garbage-collected is closed, which releases its lock. */
const locks = new Set<DatabaseSync>();

/**
 * Locks an existing data folder for this process and returns the function that unlocks it.
 *
 * SQLite holds a lock of the operating system on a file, which is released however the process ends. So nothing has to
 * be cleaned up after a `kill -9`, and no stale process id can be misread.
 *
 * @throws StartupError, which is a DataDirInUseError if another process holds the lock
 */
export function lockDataDir(dataDir: string): () => void {
  let lock: DatabaseSync | undefined;
  try {
    lock = new DatabaseSync(path.join(dataDir, 'lock'));
    // No journal on disk, since nothing is written.
    lock.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE');
  } catch (error) {
    lock?.close();
    if (!isBusy(error)) {
      throw new StartupError(`EVERTURN_DATA: ${dataDir} cannot be locked (${errorMessage(error)})`, { cause: error });
    }
    throw new DataDirInUseError(
      `another Everturn uses the data folder ${dataDir}: stop it, or set EVERTURN_DATA to another folder`,
      { cause: error },
    );
  }
  locks.add(lock);
  return () => {
    if (locks.delete(lock)) lock.close();
  };
}

/** Whether SQLite refused a lock, because another process has one. */
export function isBusy(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY;
}
