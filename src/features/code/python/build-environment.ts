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

/** It installs pip, which took 100 s on two cores with a load of 16. */
const VENV_MS = 10 * 60_000;
/** The wheels have 75 MB: this is enough at 100 KB/s. */
const INSTALL_MS = 20 * 60_000;
const COMPILE_MS = 10 * 60_000;

export type BuildStep = 'creating the environment' | 'installing packages' | 'compiling' | 'importing';

interface EnvironmentOptions extends ProcessOptions {
  /** Has one folder for each environment. */
  folder: string;
  interpreter: Interpreter;
  /** The texts of lock files with hashes, which pip installs together. */
  locks: readonly string[];
  /** The modules without which an environment is not usable. */
  modules: readonly string[];
  onStep: (step: BuildStep) => void;
}

/**
 * The interpreter of a virtual environment with the packages of lock files: the one in the cache, else one that is built.
 * An environment has its name only once it is complete, so that a killed build leaves nothing that is used, and two
 * builds at once are one too many and no harm.
 *
 * @throws Error that says what is missing
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
    // Kernels may run as other users, to whom the umask of a server closes what it makes.
    await run('chmod', ['-R', 'a+rX', made], { signal });
    await rename(made, environment).catch((error: NodeJS.ErrnoException) => {
      // Another process was faster.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  });
}

/**
 * Compiles all modules: a kernel cannot write into its environment, and would compile what it imports at each start. The
 * tests of packages are left out, which are two fifths of the code. Not all that packages have need be valid in this
 * Python, so that compileall may fail.
 */
async function compile(environment: string, python: string, options: ProcessOptions): Promise<void> {
  const args = ['-m', 'compileall', '-q', '-x', '/tests/', path.join(environment, 'lib')];
  await runPython(python, args, { ...options, timeoutMs: COMPILE_MS }).catch(() => options.signal.throwIfAborted());
}

/** Scripts name the interpreter in the folder of the build, which is not there any more; `python3 -m` runs the same. */
async function removeScripts(bin: string): Promise<void> {
  const scripts = (await readdir(bin)).filter((name) => !name.startsWith('python'));
  await Promise.all(scripts.map((name) => rm(path.join(bin, name), { recursive: true })));
}
