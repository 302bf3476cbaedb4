import type { Logger } from 'pino';
import { loadConfig, type Config, type ProcessRole } from '../config.ts';
import { openDataDir } from '../lib/data-dir.ts';
import { createLogger } from '../telemetry/logger.ts';
import type { Tracing } from '../telemetry/tracing.ts';

/** A server or a part of one. */
interface Running {
  /** Rejects if it fails; resolves when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

interface Run<T extends Running> {
  log: Logger;
  /** How long running tools may take to finish. */
  shutdownSeconds: number;
  /** Starts it. It may give up when the signal is aborted, and then stops what it has started. */
  start: (stopping: AbortSignal) => Promise<T>;
  /** What is printed when it has started. */
  greeting: (running: T) => string;
}

/**
 * How long a shutdown may take in addition to running tools: 5 s for pending requests, 10 s until the worker gives up
 * tools that ignore their cancellation, 5 s for the embedded Temporal, and 5 s for all else.
 */
const SHUTDOWN_MARGIN_SECONDS = 25;

/**
 * Runs a server until SIGINT or SIGTERM, also during its start, and stops it. Rejects if it fails before.
 *
 * A shutdown that exceeds its time ends the process with exit code 1.
 */
export async function runUntilSignal<T extends Running>(options: Run<T>): Promise<void> {
  const { log, shutdownSeconds, start, greeting } = options;
  outliveReaders();
  const stopping = new AbortController();
  let stopsSince: number | undefined;
  const limitStop = (): void => {
    stopsSince ??= performance.now();
    const limit = shutdownSeconds + SHUTDOWN_MARGIN_SECONDS;
    // Without a reference: the process may also end by itself.
    setTimeout(() => {
      log.fatal(`not stopped after ${limit} s: the process exits`);
      process.exit(1);
    }, limit * 1000).unref();
  };
  const signalled = new Promise<void>((resolve) => {
    const onSignal = (name: NodeJS.Signals): void => {
      // A second signal exits immediately, which loses nothing.
      if (stopping.signal.aborted) process.exit(130);
      log.info(`${name}: stopping; a second signal ends the process at once`);
      limitStop();
      stopping.abort();
      resolve();
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
  });
  try {
    const running = await start(stopping.signal);
    try {
      if (!stopping.signal.aborted) process.stdout.write(greeting(running));
      await Promise.race([signalled, running.finished]);
    } finally {
      if (stopsSince === undefined) limitStop();
      await running.stop();
    }
  } catch (error) {
    // The start was given up.
    if (error !== stopping.signal.reason) throw error;
  }
  log.info(`stopped after ${((performance.now() - (stopsSince ?? 0)) / 1000).toFixed(1)} s`);
}

/** A server continues without a log when the program that reads its output has ended, as in `everturn start | head`. */
function outliveReaders(): void {
  for (const output of [process.stdout, process.stderr]) {
    output.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  }
}

/** The option of the roles that run turns, as commander takes it. */
export const END_OLD_TURNS = ['--end-old-turns', 'end the open turns of earlier versions, with an error'] as const;

export interface StartOptions {
  endOldTurns?: true;
}

/** What every role of a server starts with. */
interface Bootstrapped {
  config: Config;
  log: Logger;
  tracing: Tracing | undefined;
  /** Aborted when the start is to be given up. */
  signal: AbortSignal;
}

interface Role<T extends Running> {
  start: (bootstrapped: Bootstrapped) => Promise<T>;
  greeting: (running: T, config: Config) => string;
}

/** Runs one role of a server until a signal: with settings, data folder, log, metrics and tracing. */
export async function runRole<T extends Running>(name: ProcessRole, { start, greeting }: Role<T>): Promise<void> {
  const config = loadConfig(process.env, name);
  await openDataDir(config.dataDir);
  const log = createLogger(config);
  for (const warning of config.warnings) log.warn(warning);
  let tracing: Tracing | undefined;
  await runUntilSignal({
    log,
    shutdownSeconds: name === 'kernel-host' ? config.kernels.drainSeconds : config.shutdownSeconds,
    start: async (signal) => {
      // An API runs no worker, and loads nothing of one.
      if (name !== 'api') {
        const { installTemporalRuntime } = await import('../telemetry/temporal-runtime.ts');
        await installTemporalRuntime(log);
      }
      if (config.tracing) {
        // Loaded on demand: it takes memory, and time to load.
        const { startTracing } = await import('../telemetry/tracing.ts');
        tracing = startTracing(log);
      }
      return start({ config, log, tracing, signal });
    },
    greeting: (running) => greeting(running, config),
  });
  await tracing?.stop();
}

/** Describes who may connect. `names` are those that have a key; undefined if no key is needed. */
export function describeKeys(names: string[] | undefined): string {
  if (!names) return 'not required: only this machine can connect';
  if (names.length === 0) return 'required, and there is none: create one with `everturn keys create`';
  return `required; keys exist for ${names.join(', ')}`;
}
