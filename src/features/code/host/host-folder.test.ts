import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { makeHostFolder } from './host-folder.ts';

const run = promisify(execFile);

let parent: string;
beforeEach(async () => {
  parent = await mkdtemp(path.join(os.tmpdir(), 'everturn-folders-'));
});
afterEach(() => rm(parent, { recursive: true, force: true }));

/** A process that makes a folder, prints its name, and is killed. */
const KILLED = `
  import { writeSync } from 'node:fs';
  import { makeHostFolder } from ${JSON.stringify(new URL('host-folder.ts', import.meta.url))};
  writeSync(1, (await makeHostFolder(process.argv[1])).path);
  process.kill(process.pid, 'SIGKILL');
`;

test('the folders of hosts that have ended are removed, and no others', async () => {
  const killed = await run(process.execPath, ['--input-type=module', '-e', KILLED, parent]).catch(
    (error: { signal: string; stdout: string }) => error,
  );
  expect(killed).toMatchObject({ signal: 'SIGKILL' });
  expect(await readdir(parent)).toEqual([path.basename(killed.stdout)]);
  const folder = async (name: string): Promise<void> => {
    await mkdir(path.join(parent, name));
    await writeFile(path.join(parent, name, 'file'), '');
  };
  await folder('everturn-kernel-host-that-starts');
  await folder('other');

  const own = await makeHostFolder(parent);
  const next = await makeHostFolder(parent);
  const kept = ['everturn-kernel-host-that-starts', 'other'];
  const names = async (): Promise<string[]> => (await readdir(parent)).toSorted();
  expect(await names()).toEqual([...kept, path.basename(own.path), path.basename(next.path)].toSorted());
  await own.remove();
  await next.remove();
  expect(await names()).toEqual(kept);
});
