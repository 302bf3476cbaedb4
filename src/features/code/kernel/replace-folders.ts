import { chmod, mkdir, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../workspace/entry.ts';
import { withBuildFolder } from '../../../lib/build-folder.ts';

/**
 * Replaces folders in one that kernels only read. A kernel that reads at the same time gets the files before, or those
 * that are new, or, for the moment between two renames, none. Other folders are kept.
 *
 * @param names of the folders; one without files is removed
 * @param files by their paths in `parent`
 */
export async function replaceFolders(
  parent: string,
  names: Iterable<string>,
  files: Iterable<readonly [path: string, content: string | Buffer]>,
): Promise<void> {
  await withBuildFolder(parent, async (made) => {
    const [before, after] = [path.join(made, 'before'), path.join(made, 'after')];
    await Promise.all([before, after].map((folder) => mkdir(folder)));
    for (const [file, content] of files) await writeReadable(after, file, content);
    for (const name of names) {
      await moveIfThere(path.join(parent, name), path.join(before, name));
      await moveIfThere(path.join(after, name), path.join(parent, name));
    }
  });
}

async function moveIfThere(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
}

/** The user of the sandbox, who reads it, is another one. Not by `mkdir`, whose mode the umask limits. */
async function writeReadable(root: string, file: string, content: string | Buffer): Promise<void> {
  const names = file.split('/');
  // Callers have checked them. This process may write anywhere.
  if (names.some((name) => ['', '.', '..'].includes(name)))
    throw new Error(`${JSON.stringify(file)} is no path of a file`);
  const folders = names.slice(0, -1);
  for (const depth of folders.keys()) {
    const folder = path.join(root, ...folders.slice(0, depth + 1));
    await mkdir(folder, { recursive: true });
    await chmod(folder, 0o755);
  }
  await writeFile(path.join(root, file), content);
  await chmod(path.join(root, file), 0o644);
}
