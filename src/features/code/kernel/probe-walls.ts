import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { errorMessage } from '../../../lib/errors.ts';
import { Kernel } from './kernel.ts';
import { makeSandboxFolders } from './sandbox-folders.ts';
import { NoWall, type Wall } from './wall.ts';

const run = promisify(execFile);

/** The requirements of `sandbox` and `confined`. */
const REMEDY =
  'Install bubblewrap and let its users make namespaces, or run Linux 6.2 or newer with Landlock: see "Walls" in ' +
  'docs/code-actions.md';

const DESCRIBE_MS = 60_000;
/** The user `nobody`. */
const PROBE_UID = 65_534;
const PROBE_LIMITS = { memoryBytes: 512 * 1024 * 1024, cpus: 1, processes: 64, outputBytes: 1024 };

/** Prints the folders of the interpreter and its packages. */
const DESCRIBE = `
import json, sys, IPython
print(json.dumps({"version": sys.version_info[:2], "folders": [sys.prefix, sys.base_prefix, *sys.path]}))
`;
const description = z.object({ version: z.tuple([z.int(), z.int()]), folders: z.array(z.string()) });

/** The wall that a caller wants: `auto` is the strongest one that passes the test. */
export type WantedWall = 'auto' | 'bwrap' | 'landlock' | 'none';

/**
 * The wall of this machine, tested by a kernel that is started behind it and tries what the wall must refuse.
 *
 * @param python an interpreter, 3.10 or newer, with IPython
 * @throws NoWall with the missing requirement
 */
export async function probeWalls(python: string, wanted: WantedWall): Promise<Wall> {
  const pythonFolders = await foldersOf(python);
  const isRoot = process.geteuid?.() === 0;
  const sandbox: Wall = { isolation: 'sandbox', hasOwnUser: isRoot, python, pythonFolders };
  const confined: Wall = { ...sandbox, isolation: 'confined' };
  // For an interpreter in root's home, which other users cannot read.
  const sharing: Wall = { ...confined, hasOwnUser: false };
  if (wanted === 'none') return { ...sharing, isolation: 'none' };
  const candidates = {
    auto: [sandbox, confined, ...(isRoot ? [sharing] : [])],
    bwrap: [sandbox],
    landlock: [confined, ...(isRoot ? [sharing] : [])],
  }[wanted];
  const problems: string[] = [];
  for (const wall of candidates) {
    const problem = await problemOf(wall);
    if (problem === undefined) return wall;
    problems.push(`${wall.isolation}: ${problem}`);
  }
  throw new NoWall(`no wall for kernels holds on this machine. ${problems.join('. ')}. ${REMEDY}`);
}

async function foldersOf(python: string): Promise<string[]> {
  if (process.platform !== 'linux') throw new NoWall(`kernels need Linux; this is ${process.platform}`);
  const { stdout } = await run(python, ['-I', '-c', DESCRIBE], { timeout: DESCRIBE_MS, killSignal: 'SIGKILL' }).catch(
    (cause: unknown) => {
      throw new NoWall(`${python} is no Python with IPython: ${String(cause)}`, { cause });
    },
  );
  const { version, folders } = description.parse(JSON.parse(stdout));
  if (version[0] !== 3 || version[1] < 10) throw new NoWall(`${python} is Python ${version.join('.')}; 3.10 is needed`);
  const outside = folders.filter((folder) => path.isAbsolute(folder) && !isBelow('/usr', folder));
  return [...new Set(outside)].filter((folder) => !outside.some((other) => other !== folder && isBelow(other, folder)));
}

function isBelow(folder: string, place: string): boolean {
  return place === folder || place.startsWith(`${folder}/`);
}

/** Why no kernel starts behind a wall. */
async function problemOf(wall: Wall): Promise<string | undefined> {
  const root = await mkdtemp(path.join(os.tmpdir(), 'everturn-probe-'));
  try {
    const uid = wall.hasOwnUser ? PROBE_UID : undefined;
    const folders = await makeSandboxFolders(root, uid);
    const kernel = await Kernel.start({ wall, folders, uid, env: {}, limits: PROBE_LIMITS });
    await kernel.stop('the wall holds');
    return undefined;
  } catch (error) {
    return errorMessage(error);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}
