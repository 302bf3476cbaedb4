import path from 'node:path';
import type { Logger } from 'pino';
import { buildByGo, downloadBySdk } from './install-cli.ts';
import { installPrograms, isExecutable, onPath } from './program-cache.ts';
import { errorMessage, ProvisionError } from '../lib/errors.ts';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export interface BinaryOptions {
  /** What is installed goes into its folder `bin`, and is found there the next time. */
  cacheDir: string;
  /** PATH is where `temporal` and `go` are looked for; the rest is for those that install. */
  env: NodeJS.ProcessEnv;
  /** Whether it may be downloaded, by the SDK; default false. */
  mayDownload?: boolean;
  log: Logger;
}

/**
 * The Temporal CLI: `temporal` on PATH, else the one in the cache, else one that is installed into the cache: built with
 * Go, which checks its sources against the public checksum database, or downloaded by the SDK, which checks nothing. It
 * is known to run.
 *
 * @throws ProvisionError with what can be done
 */
export async function findTemporalBinary({ cacheDir, env, mayDownload = false, log }: BinaryOptions): Promise<string> {
  const binDir = path.resolve(cacheDir, 'bin');
  const cached = path.join(binDir, 'temporal');
  for (const file of [...(await onPath('temporal', env)), cached]) {
    if (!(await isExecutable(file))) continue;
    const problem = await checkTemporalCli(file);
    if (!problem) return file;
    log.warn(`${file} is passed over: ${problem}`);
  }

  const [go] = await onPath('go', env);
  const failures: string[] = [];
  const installers = [
    ...(go ? [{ name: 'build with Go', run: (folder: string) => buildByGo({ go, folder, env, log }) }] : []),
    ...(mayDownload
      ? [{ name: 'download by the Temporal SDK', run: (folder: string) => downloadBySdk({ folder, env, log }) }]
      : []),
  ];
  for (const { name, run } of installers) {
    try {
      await installPrograms(binDir, async (folder) => {
        const file = await run(folder);
        const problem = await checkTemporalCli(file);
        if (problem) throw new Error(problem);
        return { temporal: file };
      });
      log.info(`installed Temporal: ${cached}`);
      return cached;
    } catch (error) {
      const failure = `${name}: ${errorMessage(error)}`;
      log.warn(failure);
      failures.push(failure);
    }
  }
  throw new ProvisionError(
    [
      'There is no Temporal server to run. One of these helps:',
      '- install the Temporal CLI, so that `temporal` is on PATH: https://docs.temporal.io/cli',
      `- put its program at ${cached}`,
      ...(go ? [] : ['- install Go, with which it is built, in two minutes: https://go.dev/dl']),
      ...(mayDownload
        ? []
        : ['- set EVERTURN_DOWNLOAD_TEMPORAL=true: its SDK downloads it, over TLS and without checking a digest']),
      '- set TEMPORAL_ADDRESS to a Temporal server that is running elsewhere',
      ...(failures.length > 0 ? ['Tried without success:', ...failures.map((failure) => `- ${failure}`)] : []),
    ].join('\n'),
  );
}

const run = promisify(execFile);

const VERSION_MS = 20_000;

/**
 * Servers before it were seen to lose the outcome of an Update whose workflow has closed (1.25), or have
 * Update-with-start turned off.
 */
const OLDEST_SERVER = { major: 1, minor: 27 };

/** Runs a program to see whether it is a Temporal CLI whose server is good enough; says why not if it isn't. */
export async function checkTemporalCli(file: string): Promise<string | undefined> {
  let output: string;
  try {
    ({ stdout: output } = await run(file, ['--version'], { timeout: VERSION_MS, killSignal: 'SIGKILL' }));
  } catch (error) {
    return `it does not run: ${error instanceof Error ? (error.message.trim().split('\n').at(-1) ?? '') : String(error)}`;
  }
  const [, version, major, minor] = /^temporal version .*\(Server ((\d+)\.(\d+)[^,)]*)/.exec(output) ?? [];
  if (!version) return `it is not the Temporal CLI: it says ${JSON.stringify(output.trim().slice(0, 80))}`;
  const enough =
    Number(major) > OLDEST_SERVER.major ||
    (Number(major) === OLDEST_SERVER.major && Number(minor) >= OLDEST_SERVER.minor);
  return enough
    ? undefined
    : `its server is ${version}, and ${OLDEST_SERVER.major}.${OLDEST_SERVER.minor} or newer is needed`;
}
