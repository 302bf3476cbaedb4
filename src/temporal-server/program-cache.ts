import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';

const INSTALL_PREFIX = '.install-';
/** No installation takes this long: it was killed. */
const ABANDONED_MS = 3_600_000;

/**
 * Makes programs in an empty folder, and moves them into `binDir`. The cache only ever gets whole programs that run,
 * under their names at once: others may be installing as well.
 *
 * @param make gives the files by the names that they get; it throws if one of them does not run
 */
export async function installPrograms(
  binDir: string,
  make: (folder: string) => Promise<Readonly<Record<string, string>>>,
): Promise<void> {
  await mkdir(binDir, { recursive: true });
  await removeAbandoned(binDir);
  const folder = await mkdtemp(path.join(binDir, INSTALL_PREFIX));
  try {
    for (const [name, file] of Object.entries(await make(folder))) await rename(file, path.join(binDir, name));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The programs of a name on PATH, the first to be used first. */
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
    // Another process may be removing it as well.
    const { mtimeMs } = await stat(folder).catch(() => ({ mtimeMs: Infinity }));
    if (Date.now() - mtimeMs > ABANDONED_MS) await rm(folder, { recursive: true, force: true });
  }
}
