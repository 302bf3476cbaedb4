import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { StartupError } from './errors.ts';

/** Another Everturn works in the data folder; the message says what to do. */
export class DataDirInUseError extends StartupError {
  static {
    this.prototype.name = 'DataDirInUseError';
  }
}

const SQLITE_BUSY = 5;

/** A database that is collected as garbage is closed, and its lock gone: these stay for as long as they are held. */
const held = new Set<DatabaseSync>();

/**
 * Claims a data folder for this process, and gives the function that lets go of it.
 *
 * The lock is the operating system's own, on a file that SQLite holds open: it ends with the process, however that
 * ends, so there is nothing to clean up and no process id to misread after a `kill -9`.
 *
 * @throws DataDirInUseError
 */
export function lockDataDir(dataDir: string): () => void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const lock = new DatabaseSync(path.join(dataDir, 'lock'));
  try {
    // Without a journal on disk: nothing is ever written.
    lock.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE');
  } catch (error) {
    lock.close();
    if (!(error instanceof Error) || !('errcode' in error) || error.errcode !== SQLITE_BUSY) throw error;
    throw new DataDirInUseError(
      `another Everturn is running on the data folder ${dataDir}: stop it, ` +
        `or set EVERTURN_DATA to a folder of this one's own`,
      { cause: error },
    );
  }
  held.add(lock);
  return () => {
    if (held.delete(lock)) lock.close();
  };
}
