import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A connection that receives nothing for this long, in seconds, is given up; pip tries it once more. */
const SILENCE_SECONDS = 10;
/** How many characters of pip's last error are reported. */
const MAX_PROBLEM_LENGTH = 500;

interface PipInstallOptions {
  /** A command that runs pip, with its first arguments. */
  pip: readonly [string, ...string[]];
  /** The arguments of `pip install`, which name the requirements. Each needs a hash, and has a wheel. */
  args: readonly string[];
  env: NodeJS.ProcessEnv;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

/**
 * Runs `pip install`, which takes only wheels whose SHA-256 digests the requirements have. The user's configuration
 * applies, since it may name a mirror.
 *
 * @throws Error with pip's last error
 */
export async function pipInstall({
  pip: [file, ...first],
  args,
  env,
  timeoutMs,
  signal,
}: PipInstallOptions): Promise<void> {
  const limits = `--timeout ${SILENCE_SECONDS} --retries 1 --no-input --disable-pip-version-check`;
  const options = `--quiet ${limits} --only-binary :all: --require-hashes`;
  // Settings of other folders in the configuration do not apply.
  const settings = { ...env, PIP_USER: '0', PIP_REQUIRE_VIRTUALENV: '0' };
  try {
    await run(file, [...first, 'install', ...options.split(' '), ...args], {
      env: settings,
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
      signal,
    });
  } catch (cause) {
    signal?.throwIfAborted();
    throw new Error(`pip install: ${pipProblem(cause, timeoutMs)}`, { cause });
  }
}

/** The last error that pip has printed, which names the problem, or how its process ended. */
function pipProblem(error: unknown, timeoutMs: number): string {
  if (!(error instanceof Error)) return String(error);
  if ('killed' in error && error.killed) return `not finished after ${timeoutMs / 60_000} minutes`;
  const output = 'stderr' in error ? String(error.stderr).trim() : '';
  const lines = output.split('\n');
  const said = lines.findLast((line) => line.startsWith('ERROR: ')) ?? (lines.at(-1) || error.message);
  const last = said.slice(0, MAX_PROBLEM_LENGTH);
  // Without an index, pip reports that the package of the first requirement does not exist.
  if (!/connection broken by|ConnectTimeout|ReadTimeout/.test(output)) return last;
  return `the package index cannot be reached: check the network and pip's configuration (${last})`;
}
