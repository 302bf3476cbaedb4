import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';

const PREFIX = '.install-';
/** A build that is older than this was killed. */
const ABANDONED_MS = 3_600_000;

/**
 * Runs `make` with an empty folder in `parent`, which is removed afterwards: what it makes is moved out of it, atomically,
 * since both are on one file system. Also removes the folders of builds that were killed.
 */
export async function withBuildFolder<T>(parent: string, make: (folder: string) => Promise<T>): Promise<T> {
  await removeAbandoned(parent);
  const folder = await mkdtemp(path.join(parent, PREFIX));
  try {
    return await make(folder);
  } finally {
    // A program that was killed may still be writing for a moment; what remains is removed with the abandoned ones.
    await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }).catch(() => undefined);
  }
}

async function removeAbandoned(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const folder = path.join(parent, name);
    if (!name.startsWith(PREFIX)) continue;
    // Another process may be removing it, too.
    const { mtimeMs } = await stat(folder).catch(() => ({ mtimeMs: Infinity }));
    if (Date.now() - mtimeMs > ABANDONED_MS) await rm(folder, { recursive: true, force: true });
  }
}
