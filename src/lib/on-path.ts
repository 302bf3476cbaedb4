import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import path from 'node:path';

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
