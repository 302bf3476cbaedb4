import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { hasEnded, recordOfProcess } from '../../../lib/process-record.ts';

/** The folder in an environment with a record of each process that uses it. */
const USERS = '.users';

/** The names of environments: see `environmentPython`. */
const ENVIRONMENT = /^[0-9a-f]{32}$/;

/** Younger environments are kept, since the process that has built one may not have recorded its use yet. */
const MIN_AGE_MS = 3_600_000;

/** Records in an environment that this process uses it until the process ends. */
export async function useEnvironment(environment: string): Promise<void> {
  const users = path.join(environment, USERS);
  await mkdir(users, { recursive: true });
  await writeFile(path.join(users, `${randomUUID()}.json`), await recordOfProcess(), { mode: 0o600 });
}

/**
 * Removes the environments beside this one, unless another process uses them: each version of Everturn with other
 * packages leaves one of 300 MB.
 * @param now milliseconds since 1970
 */
export async function removeUnusedBeside(environment: string, now = Date.now()): Promise<void> {
  const folder = path.dirname(environment);
  const names = (await readdir(folder)).filter((name) => ENVIRONMENT.test(name));
  for (const other of names.map((name) => path.join(folder, name)).filter((one) => one !== environment)) {
    if (now - (await stat(other)).ctimeMs < MIN_AGE_MS || (await isUsed(other))) continue;
    // Renamed, so that no process begins to use it; checked again, since a process may have begun before.
    const hidden = `${other}.unused`;
    await rename(other, hidden);
    if (await isUsed(hidden)) await rename(hidden, other);
    else await rm(hidden, { recursive: true });
  }
}

async function isUsed(environment: string): Promise<boolean> {
  const users = path.join(environment, USERS);
  for (const name of await readdir(users).catch(() => [])) {
    const file = path.join(users, name);
    if (!(await hasEnded(await readFile(file, 'utf8')))) return true;
    await unlink(file);
  }
  return false;
}
