import { chmod, mkdir, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../workspace/entry.ts';
import { withBuildFolder } from '../../../lib/build-folder.ts';

/**
 * Replaces folders in `parent`, which kernels only read. A kernel that reads at the same time gets the old files, the
 * new ones or, between two renames, none. Other folders are kept.
 *
 * @param names the folders to replace; a folder without files is removed
 * @param files the new files, by their paths in `parent`
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

/** Writes a file that the user of the sandbox, another one, can read. Uses `chmod`, since the umask limits `mkdir`. */
async function writeReadable(root: string, file: string, content: string | Buffer): Promise<void> {
  const names = file.split('/');
  // Callers have checked the names, too; checked again, since this process may write anywhere.
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
