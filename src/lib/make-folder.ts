import { constants, existsSync } from 'node:fs';
import { access, mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { errorMessage, StartupError } from './errors.ts';

/**
 * Creates the folder of a setting, and its parents, unless it exists, and checks that it can be written.
 * @throws StartupError that names the setting
 */
export async function makeFolder(folder: string, setting: string): Promise<void> {
  try {
    await create(folder);
    if (!(await stat(folder)).isDirectory()) throw new Error('it is a file');
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new StartupError(
      `${setting} must be a folder that this user can create or write: ${folder} is not (${errorMessage(error)})`,
      { cause: error },
    );
  }
}

/** Node's own recursive `mkdir` never ends where the parent exists and nothing can be created in it, as in /proc. */
async function create(folder: string): Promise<void> {
  const parent = path.dirname(folder);
  if (!existsSync(parent) && parent !== folder) await create(parent);
  await mkdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
}
