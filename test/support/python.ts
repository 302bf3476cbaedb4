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
  const folder = path.join(cache, 'everturn', `test-venv-${requirements.join('-').replaceAll('==', '-')}`);
  if (!existsSync(folder)) {
    const aside = `${folder}.${process.pid}`;
    await mkdir(path.dirname(folder), { recursive: true });
    await run('python3', ['-m', 'venv', '--copies', aside]);
    await run(path.join(aside, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', ...requirements]);
    await rename(aside, folder).catch(() => rm(aside, { recursive: true }));
  }
  return path.join(folder, 'bin', 'python');
}
