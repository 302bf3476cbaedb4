import path from 'node:path';
import type { Logger } from 'pino';
import { INSTALLERS, INSTALLER_NAMES, type InstallerName } from './installers.ts';
import { MissingProgramError } from './install-options.ts';
import { temporalEnv } from './temporal-env.ts';
import { installPrograms } from './program-cache.ts';
import { isExecutable, onPath } from '../lib/on-path.ts';
import { errorMessage, ProvisionError } from '../lib/errors.ts';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

interface BinaryOptions {
  /** The CLI is installed into its subfolder `bin`, and found there the next time. */
  cacheDir: string;
  /** Its PATH is searched for `temporal` and for what installers need; installers get the whole environment. */
  env: NodeJS.ProcessEnv;
  /** The ways in which the CLI may be installed, in the order in which they are tried. */
  installers: readonly InstallerName[];
  log: Logger;
}

/**
 * Finds a Temporal CLI that runs: `temporal` on PATH, else in the cache, else installed into the cache by the first of
 * the installers that succeeds.
 *
 * @throws ProvisionError that lists the remedies
 */
export async function findTemporalBinary({ cacheDir, env, installers, log }: BinaryOptions): Promise<string> {
  const binDir = path.resolve(cacheDir, 'bin');
  const cached = path.join(binDir, 'temporal');
  for (const file of [...(await onPath('temporal', env)), cached]) {
    if (!(await isExecutable(file))) continue;
    const problem = await checkTemporalCli(file);
    if (!problem) return file;
    log.warn(`${file} is skipped: ${problem}`);
  }

  const remedies: string[] = [];
  const failures: string[] = [];
  for (const installer of installers) {
    const { title, install } = INSTALLERS[installer];
    const startedAt = performance.now();
    try {
      await installPrograms(binDir, async (folder) => {
        const file = await install({ folder, env, log });
        const problem = await checkTemporalCli(file);
        if (problem) throw new Error(problem);
        return { temporal: file };
      });
      log.info(`installed Temporal in ${((performance.now() - startedAt) / 1000).toFixed(1)} s: ${cached}`);
      return cached;
    } catch (error) {
      if (error instanceof MissingProgramError) {
        log.info(`${title} is skipped: ${error.message}`);
        remedies.push(error.remedy);
      } else {
        const failure = `${title}: ${errorMessage(error)}`;
        log.warn(failure);
        failures.push(failure);
      }
    }
  }
  const excluded = INSTALLER_NAMES.filter((name) => !installers.includes(name));
  throw new ProvisionError(
    [
      'No Temporal server is available. Do one of the following:',
      '- install the Temporal CLI, so that `temporal` is on PATH: https://docs.temporal.io/cli',
      `- put the CLI at ${cached}`,
      ...[...remedies, ...excluded.map((name) => INSTALLERS[name].permission)].map((remedy) => `- ${remedy}`),
      '- set TEMPORAL_ADDRESS to a running Temporal server',
      ...(failures.length > 0 ? ['These attempts failed:', ...failures.map((failure) => `- ${failure}`)] : []),
    ].join('\n'),
  );
}

const run = promisify(execFile);

const VERSION_MS = 20_000;

/**
 * Older servers lose the outcome of an Update whose workflow has closed (observed with 1.25), or have Update-with-start
 * turned off.
 */
const OLDEST_SERVER = { major: 1, minor: 27 };

/** Runs a program to check that it is a Temporal CLI with a recent enough server. Returns the problem, if any. */
async function checkTemporalCli(file: string): Promise<string | undefined> {
  let output: string;
  try {
    ({ stdout: output } = await run(file, ['--version'], {
      // A CLI that needs more variables would not run as the server either.
      env: temporalEnv(process.env),
      timeout: VERSION_MS,
      killSignal: 'SIGKILL',
    }));
  } catch (error) {
    return `it does not run: ${error instanceof Error ? (error.message.trim().split('\n').at(-1) ?? '') : String(error)}`;
  }
  const [, version, major, minor] = /^temporal version .*\(Server ((\d+)\.(\d+)[^,)]*)/.exec(output) ?? [];
  if (!version) return `it is not the Temporal CLI: it prints ${JSON.stringify(output.trim().slice(0, 80))}`;
  const isRecent =
    Number(major) > OLDEST_SERVER.major ||
    (Number(major) === OLDEST_SERVER.major && Number(minor) >= OLDEST_SERVER.minor);
  return isRecent
    ? undefined
    : `its server is ${version}, and ${OLDEST_SERVER.major}.${OLDEST_SERVER.minor} or newer is needed`;
}
