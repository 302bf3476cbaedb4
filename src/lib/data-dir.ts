import { chmod, mkdir, readdir, stat } from 'node:fs/promises';
import path from 'node:path';

/**
 * Makes the data folder, if it is not there, and closes it to other users: conversations, keys' hashes and the lock are in
 * it. What this process and those that it starts make from here on is closed as well, Temporal's database included.
 *
 * A folder that belongs to another user, such as a volume, is left as its owner has arranged it.
 */
export async function openDataDir(dataDir: string): Promise<void> {
  process.umask(0o077);
  await mkdir(dataDir, { recursive: true });
  const { mode, uid } = await stat(dataDir);
  const isOpen = (mode & 0o077) !== 0;
  if (!isOpen || uid !== process.geteuid?.()) return;
  // First, so that nothing is read or held while the rest is on its way.
  await chmod(dataDir, 0o700);
  for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
    const place = path.join(entry.parentPath, entry.name);
    if (entry.isDirectory()) await chmod(place, 0o700);
    else if (entry.isFile()) await chmod(place, 0o600);
  }
}
