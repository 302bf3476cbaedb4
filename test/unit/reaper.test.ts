import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { commandLineOf } from '../support/own-processes.ts';
import { killUsersAtEnd } from '../support/reaper.ts';

const REAPER = new URL('../support/reaper.ts', import.meta.url).href;

/** A process that starts two others, one watched by its id and one by its folder, and prints their ids. */
const PARENT = `
  import { spawn } from 'node:child_process';
  import { killAtEnd, killUsersAtEnd } from '${REAPER}';
  const child = killAtEnd(spawn('sleep', ['1000'], { stdio: 'ignore' }));
  killUsersAtEnd(process.argv[1]);
  const args = ['-e', 'setInterval(() => {}, 1_000)', process.argv[1] + '/database'];
  const user = spawn(process.execPath, args, { detached: true, stdio: 'ignore' });
  console.log(JSON.stringify([child.pid, user.pid]));
  setInterval(() => {}, 1_000);`;

test.each(['SIGTERM', 'SIGKILL'] as const)('what a process has started is killed after %s to it', async (signal) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-reaper-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const parent = spawn(process.execPath, ['--input-type=module', '-e', PARENT, folder], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(parent.stdout, 'data')) as [Buffer];
  const pids = JSON.parse(String(line)) as number[];
  for (const pid of pids) expect(await commandLineOf(pid)).not.toBe('');
  parent.kill(signal);
  for (const pid of pids) await expect.poll(() => commandLineOf(pid)).toBe('');
});

test('a path that is no temporary folder is rejected: its users could be other programs', () => {
  for (const folder of ['', '/', tmpdir(), '/work', 'everturn-test-abcdef']) {
    expect(() => killUsersAtEnd(folder)).toThrow('is no temporary folder of a test');
  }
});
