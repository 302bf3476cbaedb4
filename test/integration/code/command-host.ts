/** A process with one command that has a child and does not end. It prints its wall as JSON once both run. The argument is what `probeWalls` gets. */
import { access, mkdtemp } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CommandRunner } from '../../../src/features/code/commands/command-runner.ts';
import { probeWalls, type WantedWall } from '../../../src/features/code/kernel/probe-walls.ts';
import { makeSandboxFolders } from '../../../src/features/code/kernel/sandbox-folders.ts';
import { NEVER_ABORTED } from '../../../src/lib/abort.ts';

const [, , wanted, python = '', parent = ''] = process.argv;
const wall = await probeWalls(python, wanted as WantedWall);
const uid = wall.hasOwnUser ? 123_457 : undefined;
const folders = await makeSandboxFolders(await mkdtemp(path.join(parent, 'sandbox-')), uid);
const limits = { memoryBytes: 1024 ** 3, cpus: 1, processes: 64 };
const runner = new CommandRunner({ wall, folders, uid, limits });
const text = 'trap "" TERM HUP; sleep 600 & echo > "$HOME/started"; wait';
const started = path.join(folders.home, 'started');
const ended = runner.run({ text, cwd: '/', env: {}, timeoutMs: 600_000, outputBytes: 1024, signal: NEVER_ABORTED });
while (
  !(await access(started).then(
    () => true,
    () => false,
  ))
) {
  await sleep(20);
}
process.stdout.write(JSON.stringify(wall));
await ended;
