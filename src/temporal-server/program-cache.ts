import { constants } from 'node:fs';
import { access, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { makeFolder } from '../lib/make-folder.ts';

const INSTALL_PREFIX = '.install-';
/** An installation that is older than this was killed. */
const ABANDONED_MS = 3_600_000;

/**
 * Creates programs in an empty folder and moves them into `binDir`. The moves are atomic, so the cache only has
 * complete programs that run, even with concurrent installations.
 *
 * @param make returns the files by their names in the cache; it throws if one of them does not run
 */
export async function installPrograms(
  binDir: string,
  make: (folder: string) => Promise<Readonly<Record<string, string>>>,
): Promise<void> {
  await makeFolder(binDir, 'XDG_CACHE_HOME');
  await removeAbandoned(binDir);
  const folder = await mkdtemp(path.join(binDir, INSTALL_PREFIX));
  try {
    for (const [name, file] of Object.entries(await make(folder))) await rename(file, path.join(binDir, name));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The programs with this name on PATH, in its order. */
export async function onPath(name: string, env: NodeJS.ProcessEnv): Promise<string[]> {
  const files = (env['PATH'] ?? '')
    .split(path.delimiter)
    .filter((folder) => path.isAbsolute(folder))
    .map((folder) => path.join(folder, name));
  const executable = await Promise.all(files.map(isExecutable));
  return files.filter((_, index) => executable[index]);
}

export async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}

async function removeAbandoned(binDir: string): Promise<void> {
  for (const name of await readdir(binDir)) {
    const folder = path.join(binDir, name);
    if (!name.startsWith(INSTALL_PREFIX)) continue;
    // Another process may be removing it, too.
    const { mtimeMs } = await stat(folder).catch(() => ({ mtimeMs: Infinity }));
    if (Date.now() - mtimeMs > ABANDONED_MS) await rm(folder, { recursive: true, force: true });
  }
}
