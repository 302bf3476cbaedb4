import { execFile } from 'node:child_process';
import { readdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { withBuildFolder } from '../../../lib/build-folder.ts';
import { errorMessage } from '../../../lib/errors.ts';
import { sha256 } from '../../../lib/hash.ts';
import { makeFolder } from '../../../lib/make-folder.ts';
import { isExecutable } from '../../../lib/on-path.ts';
import { pipInstall } from '../../../lib/pip-install.ts';
import { importAll, probe, runPython, type Interpreter, type ProcessOptions } from './interpreter.ts';

const run = promisify(execFile);

/** Includes the installation of pip, which took 100 s on two cores with a load of 16. */
const VENV_MS = 10 * 60_000;
/** Enough for the 75 MB of wheels at 100 KB/s. */
const INSTALL_MS = 20 * 60_000;
const COMPILE_MS = 10 * 60_000;

export type BuildStep = 'creating the environment' | 'installing packages' | 'compiling' | 'importing';

interface EnvironmentOptions extends ProcessOptions {
  /** The cache, with one folder for each environment. */
  folder: string;
  interpreter: Interpreter;
  /** The texts of lock files with hashes, which pip installs together. */
  locks: readonly string[];
  /** The modules that a usable environment needs. */
  modules: readonly string[];
  onStep: (step: BuildStep) => void;
}

/**
 * The interpreter of a virtual environment with the packages of lock files, from the cache or newly built. An
 * environment gets its final name only once it is complete, so that an incomplete one of a killed build is never used,
 * and concurrent builds are only wasteful.
 *
 * @throws Error with the missing requirement
 */
export async function environmentPython(options: EnvironmentOptions): Promise<string> {
  const { folder, interpreter, locks } = options;
  const { version, abi, base } = interpreter;
  const environment = path.join(folder, sha256(JSON.stringify({ locks, version, abi, base })).slice(0, 32));
  const python = path.join(environment, 'bin', 'python3');
  if (!(await isExecutable(python))) await build(environment, options);
  await probe(python, options).catch((error: unknown) => {
    options.signal.throwIfAborted();
    throw new Error(`the environment ${environment} does not run (${errorMessage(error)}): remove this folder`);
  });
  return python;
}

async function build(environment: string, options: EnvironmentOptions): Promise<void> {
  const { folder, interpreter, locks, modules, onStep, env, signal } = options;
  await makeFolder(folder, 'XDG_CACHE_HOME');
  await withBuildFolder(folder, async (work) => {
    onStep('creating the environment');
    const made = path.join(work, 'environment');
    const python = path.join(made, 'bin', 'python3');
    await runPython(interpreter.file, ['-m', 'venv', made], { ...options, timeoutMs: VENV_MS });
    onStep('installing packages');
    const files = locks.map((_, index) => path.join(work, `${index}.lock`));
    for (const [index, file] of files.entries()) await writeFile(file, locks[index] ?? '');
    const args = ['--no-compile', ...files.flatMap((file) => ['-r', file])];
    await pipInstall({ pip: [python, '-I', '-m', 'pip'], args, env, timeoutMs: INSTALL_MS, signal });
    onStep('compiling');
    await compile(made, python, options);
    onStep('importing');
    await importAll(python, modules, options);
    await removeScripts(path.dirname(python));
    // Kernels may run as other users, whose access the umask of the server may prevent.
    await run('chmod', ['-R', 'a+rX', made], { signal });
    await rename(made, environment).catch((error: NodeJS.ErrnoException) => {
      // Another process was faster.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  });
}

/**
 * Compiles all modules: a kernel cannot write into its environment, and would compile its imports at each start. The
 * tests of packages, two fifths of the code, are left out. compileall may fail, since packages may contain files that
 * are invalid in this version of Python.
 */
async function compile(environment: string, python: string, options: ProcessOptions): Promise<void> {
  const args = ['-m', 'compileall', '-q', '-x', '/tests/', path.join(environment, 'lib')];
  await runPython(python, args, { ...options, timeoutMs: COMPILE_MS }).catch(() => options.signal.throwIfAborted());
}

/** Removes scripts: they contain the path of the build, which no longer exists. `python3 -m` runs the same programs. */
async function removeScripts(bin: string): Promise<void> {
  const scripts = (await readdir(bin)).filter((name) => !name.startsWith('python'));
  await Promise.all(scripts.map((name) => rm(path.join(bin, name), { recursive: true })));
}
