/** A process with one kernel: prints its wall as JSON once the kernel runs a cell without end. The argument is what `probeWalls` gets. */
import { mkdtemp } from 'node:fs/promises';
import path from 'node:path';
import { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import { probeWalls, type WantedWall } from '../../../src/features/code/kernel/probe-walls.ts';
import { makeSandboxFolders } from '../../../src/features/code/kernel/sandbox-folders.ts';

const [, , wanted, python = '', parent = ''] = process.argv;
const wall = await probeWalls(python, wanted as WantedWall);
const uid = wall.hasOwnUser ? 123_456 : undefined;
const folders = await makeSandboxFolders(await mkdtemp(path.join(parent, 'sandbox-')), uid);
const limits = { memoryBytes: 1024 ** 3, cpus: 1, processes: 64, outputBytes: 1024 };
const kernel = await Kernel.start({ wall, folders, uid, env: {}, limits });
const onOutput = () => process.stdout.write(JSON.stringify(wall));
await kernel.run({ id: 'endless', code: 'print(1)\nwhile True: pass' }, { timeoutMs: 600_000, onOutput });
