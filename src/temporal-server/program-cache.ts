import { rename } from 'node:fs/promises';
import path from 'node:path';
import { withBuildFolder } from '../lib/build-folder.ts';
import { makeFolder } from '../lib/make-folder.ts';

/**
 * Creates programs in an empty folder and moves them into `binDir`. The moves are atomic, so the cache only contains
 * complete programs that can be executed, even with concurrent installations.
 *
 * @param make returns the files by their names in the cache; it throws if one of them does not run
 */
export async function installPrograms(
  binDir: string,
  make: (folder: string) => Promise<Readonly<Record<string, string>>>,
): Promise<void> {
  await makeFolder(binDir, 'XDG_CACHE_HOME');
  await withBuildFolder(binDir, async (folder) => {
    for (const [name, file] of Object.entries(await make(folder))) await rename(file, path.join(binDir, name));
  });
}
