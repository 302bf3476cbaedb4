import { chmod, readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { makeFolder } from './make-folder.ts';

/**
 * Creates the data folder if it does not exist and closes it to other users: it holds conversations, hashes of keys and
 * the lock. The umask closes all files that this process and its children create later, Temporal's database included.
 *
 * The permissions of a folder that belongs to another user, such as a volume, are left unchanged.
 * @throws StartupError if it cannot be written
 */
export async function openDataDir(dataDir: string): Promise<void> {
  process.umask(0o077);
  await makeFolder(dataDir, 'EVERTURN_DATA');
  const { mode, uid } = await stat(dataDir);
  const isOpen = (mode & 0o077) !== 0;
  if (!isOpen || uid !== process.geteuid?.()) return;
  // The folder first, so that no other user can open its files while they are being closed.
  await chmod(dataDir, 0o700);
  for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
    const place = path.join(entry.parentPath, entry.name);
    if (entry.isDirectory()) await chmod(place, 0o700);
    else if (entry.isFile()) await chmod(place, 0o600);
  }
}
