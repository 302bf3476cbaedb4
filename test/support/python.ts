import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The Python of a virtual environment with some packages (`name==version`), created once per machine. */
export async function pythonWith(...requirements: string[]): Promise<string> {
  const cache = path.join(process.env['XDG_CACHE_HOME'] ?? path.join(homedir(), '.cache'), 'everturn');
  const folder = path.join(cache, `test-venv-${requirements.join('-').replaceAll('==', '-')}`);
  await makeOnce(folder, async (aside) => {
    await run('python3', ['-m', 'venv', '--copies', aside]);
    // Most modules are never loaded: compiling all of them takes longer than everything else.
    const install = ['-m', 'pip', 'install', '--quiet', '--no-compile'];
    await run(path.join(aside, 'bin', 'python'), [...install, ...requirements]);
  });
  return path.join(folder, 'bin', 'python');
}

/** Makes a folder that is missing, whole or not at all: `make` fills another one, which gets its name, unless another process was faster. */
export async function makeOnce(folder: string, make: (aside: string) => Promise<unknown>): Promise<void> {
  if (existsSync(folder)) return;
  const aside = `${folder}.${process.pid}`;
  await mkdir(path.dirname(folder), { recursive: true });
  await make(aside);
  await rename(aside, folder).catch(() => rm(aside, { recursive: true }));
}
