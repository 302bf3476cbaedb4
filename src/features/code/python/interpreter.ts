import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { z } from 'zod';
import { errorMessage } from '../../../lib/errors.ts';
import { onPath } from '../../../lib/on-path.ts';

const run = promisify(execFile);

const OLDEST = [3, 10] as const;

export const NEEDED_PYTHON = `Python ${OLDEST.join('.')} or newer`;

/** Long enough for a cold disk and a busy machine. */
const PROBE_MS = 60_000;
const IMPORT_MS = 180_000;
const MAX_REASON_LENGTH = 500;

const interpreter = z.object({
  version: z.tuple([z.int(), z.int(), z.int()]),
  /** The ABI of the compiled modules that it can load. */
  abi: z.string(),
  /** The installation, to which a virtual environment has links. */
  base: z.string(),
  hasVenv: z.boolean(),
});

/** A Python that runs. */
export interface Interpreter extends Omit<z.infer<typeof interpreter>, 'version'> {
  file: string;
  version: string;
  isOld: boolean;
}

/** A program that every Python 3 can run. */
const PROBE = `
import json, sys, sysconfig
try:
    import ensurepip, venv
    has_venv = True
except ImportError:
    has_venv = False
print(json.dumps({
    'version': sys.version_info[:3], 'abi': str(sysconfig.get_config_var('SOABI')), 'base': sys.base_prefix,
    'hasVenv': has_venv,
}))
`;

export interface ProcessOptions {
  env: NodeJS.ProcessEnv;
  signal: AbortSignal;
}

/** Reads the properties of an interpreter, without packages and variables of the user, as in kernels. @throws Error */
export async function probe(file: string, options: ProcessOptions): Promise<Interpreter> {
  const output = await runPython(file, ['-c', PROBE], { ...options, timeoutMs: PROBE_MS });
  const { version, ...rest } = interpreter.parse(JSON.parse(output));
  const [major, minor] = version;
  const isOld = major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
  return { ...rest, file, version: version.join('.'), isOld };
}

/** The first `python3` on PATH that can make virtual environments for kernels. @throws Error with what is missing */
export async function findPython(options: ProcessOptions): Promise<Interpreter> {
  const reasons: string[] = [];
  for (const file of await onPath('python3', options.env)) {
    const found = await probe(file, options).catch((error: unknown) => `${file} does not run: ${errorMessage(error)}`);
    options.signal.throwIfAborted();
    if (typeof found === 'string') reasons.push(found);
    else if (found.isOld) reasons.push(`${file} is Python ${found.version}`);
    else if (!found.hasVenv) reasons.push(`${file} has no venv module (on Debian: apt-get install python3-venv)`);
    else return found;
  }
  const reason = reasons.length > 0 ? reasons.slice(0, 3).join('; ') : 'python3 is not on PATH';
  throw new Error(`${reason}: install ${NEEDED_PYTHON} with its venv module, or set EVERTURN_KERNEL_PYTHON`);
}

const IMPORTS = `
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
pydantic = sys.modules.get('pydantic')
if pydantic and not pydantic.VERSION.startswith('2.'):
    sys.exit('pydantic is ' + pydantic.VERSION + ', and kernels need version 2')
`;

/** Imports modules, since installed modules may be broken. @throws Error with the last line of Python's output */
export async function importAll(file: string, modules: readonly string[], options: ProcessOptions): Promise<void> {
  await runPython(file, ['-c', IMPORTS, ...modules], { ...options, timeoutMs: IMPORT_MS });
}

/** Runs Python with bounded time and output, and returns its output. @throws Error with the last line of its errors */
export async function runPython(
  file: string,
  args: readonly string[],
  { env, signal, timeoutMs }: ProcessOptions & { timeoutMs: number },
): Promise<string> {
  try {
    // Isolated (`-I`), since kernels have no PYTHONPATH of the user.
    const { stdout } = await run(file, ['-I', ...args], { env, signal, timeout: timeoutMs, killSignal: 'SIGKILL' });
    return stdout;
  } catch (cause) {
    signal.throwIfAborted();
    throw new Error(problemOf(cause, timeoutMs), { cause });
  }
}

function problemOf(error: unknown, timeoutMs: number): string {
  if (error instanceof Error && 'killed' in error && error.killed) return `not finished after ${timeoutMs / 1000} s`;
  const lines = error instanceof Error && 'stderr' in error ? String(error.stderr).trim().split('\n') : [];
  return (lines.at(-1) || errorMessage(error)).slice(0, MAX_REASON_LENGTH);
}
