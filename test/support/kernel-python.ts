import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { loadConfig } from '../../src/config.ts';
import { findPython } from '../../src/features/code/python/interpreter.ts';
import { KernelPython } from '../../src/features/code/python/kernel-python.ts';
import { NEVER_ABORTED } from '../../src/lib/abort.ts';
import { makeOnce } from './python.ts';

const run = promisify(execFile);

/** How long a hook may take that makes an environment, which the first test run on a machine does. */
export const BUILDS_PYTHON = 600_000;

/** Where other users can read it, as the users of sandboxes must: they cannot enter root's home. */
const CACHE = '/var/cache/everturn-tests';
/** The first `python3` on `PATH` may be in root's home. */
const OF_SYSTEM = { ...process.env, PATH: '/usr/bin:/bin' };

let ofSystem: Promise<string> | undefined;

/** An interpreter that kernels can use, whose user may be another one. `EVERTURN_KERNEL_PYTHON` replaces it. */
export async function kernelPython(): Promise<string> {
  return process.env['EVERTURN_KERNEL_PYTHON'] ?? readablePython();
}

/** The Python of kernels as a kernel host builds it, in the cache of this user. */
export async function builtKernelPython(): Promise<string> {
  const { cacheDir } = loadConfig({ XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] });
  const own = await interpreter(process.env);
  const system = await interpreter(OF_SYSTEM).catch(() => undefined);
  if (own === system) {
    // A build takes 16 seconds of processor time, and an environment does not name its folder.
    const built = path.dirname(path.dirname(await readablePython()));
    await makeOnce(path.join(cacheDir, 'kernels', path.basename(built)), (aside) => run('cp', ['-a', built, aside]));
  }
  return build(cacheDir, process.env);
}

function readablePython(): Promise<string> {
  ofSystem ??= build(CACHE, OF_SYSTEM);
  return ofSystem;
}

async function build(cacheDir: string, env: NodeJS.ProcessEnv): Promise<string> {
  const log = pino({ level: 'silent' });
  const found = new KernelPython({ cacheDir, python: undefined, requirements: undefined, env, log });
  try {
    return (await found.ready()).python;
  } finally {
    await found.close();
  }
}

/** The part of the name of an environment that identifies its interpreter. */
async function interpreter(env: NodeJS.ProcessEnv): Promise<string> {
  const { version, abi, base } = await findPython({ env, signal: NEVER_ABORTED });
  return [version, abi, base].join();
}
