import { pino } from 'pino';
import { loadConfig } from '../../src/config.ts';
import { KernelPython } from '../../src/features/code/python/kernel-python.ts';
import { venvIn } from './python.ts';

/** How long a hook may take that makes an environment, which the first test run on a machine does. */
export const BUILDS_PYTHON = 600_000;

const PACKAGES = ['ipython==9.18.1', 'pydantic==2.14.4', 'matplotlib==3.11.2', 'pandas==3.1.1', 'cloudpickle==3.1.3'];
/** Where other users can read it, as the users of sandboxes must: they cannot enter root's home. */
const CACHE = '/var/cache/everturn-tests';
/** The first `python3` on `PATH` may be in root's home. */
const SYSTEM_PYTHON = '/usr/bin/python3';

/** An interpreter that kernels can use, whose user may be another one. `EVERTURN_KERNEL_PYTHON` replaces it. */
export async function kernelPython(): Promise<string> {
  return process.env['EVERTURN_KERNEL_PYTHON'] ?? venvIn(CACHE, SYSTEM_PYTHON, PACKAGES);
}

/** The Python of kernels as a kernel host builds it, in the cache of this user. */
export async function builtKernelPython(): Promise<string> {
  const { XDG_CACHE_HOME } = process.env;
  const { cacheDir, kernels } = loadConfig({ XDG_CACHE_HOME });
  const log = pino({ level: 'silent' });
  const found = KernelPython.open({ ...kernels, requirements: undefined, cacheDir, env: process.env, log });
  try {
    return (await found.ready()).python;
  } finally {
    await found.close();
  }
}
