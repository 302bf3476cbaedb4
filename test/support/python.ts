import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The Python of a virtual environment with some packages (`name==version`), created once per machine. */
export async function pythonWith(...requirements: string[]): Promise<string> {
  const cache = process.env['XDG_CACHE_HOME'] ?? path.join(homedir(), '.cache');
  return venvIn(path.join(cache, 'everturn'), 'python3', requirements);
}

/** The same in a folder that is given, with an interpreter that is given. */
export async function venvIn(cache: string, python: string, requirements: string[]): Promise<string> {
  const folder = path.join(cache, `test-venv-${requirements.join('-').replaceAll('==', '-')}`);
  if (!existsSync(folder)) {
    const aside = `${folder}.${process.pid}`;
    await mkdir(path.dirname(folder), { recursive: true });
    await run(python, ['-m', 'venv', '--copies', aside]);
    await run(path.join(aside, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', ...requirements]);
    await rename(aside, folder).catch(() => rm(aside, { recursive: true }));
  }
  return path.join(folder, 'bin', 'python');
}
