import path from 'node:path';
import type { Logger } from 'pino';
import { buildByGo, downloadBySdk } from './install-cli.ts';
import { installPrograms, isExecutable, onPath } from './program-cache.ts';
import { ProvisionError } from '../lib/errors.ts';
import { whyUnusable } from './merge-temporal-program.ts';

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
    const problem = await whyUnusable(file);
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
        const problem = await whyUnusable(file);
        if (problem) throw new Error(problem);
        return { temporal: file };
      });
      log.info(`installed Temporal: ${cached}`);
      return cached;
    } catch (error) {
      const failure = `${name}: ${error instanceof Error ? error.message : String(error)}`;
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
