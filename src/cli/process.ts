import type { Logger } from 'pino';
import { loadConfig, type Config, type ProcessRole } from '../config.ts';
import { openDataDir } from '../lib/data-dir.ts';
import { createLogger } from '../telemetry/logger.ts';
import type { Tracing } from '../telemetry/tracing.ts';

/** A server or a part of one. */
export interface Running {
  /** Rejects if it fails; resolves when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

/** Waits for SIGINT or SIGTERM, then stops `running`. Rejects if that fails before. */
export async function runUntilSignal(running: Running): Promise<void> {
  const signal = new Promise<void>((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM'] as const) {
      process.once(name, () => {
        // A second signal exits immediately, which loses nothing.
        process.once(name, () => process.exit(130));
        resolve();
      });
    }
  });
  try {
    await Promise.race([signal, running.finished]);
  } finally {
    await running.stop();
  }
}

export interface Bootstrapped {
  config: Config;
  log: Logger;
  tracing: Tracing | undefined;
}

/** Initializes settings, data folder, log, metrics and tracing, as every serving process does first. */
export async function bootstrap(role: ProcessRole): Promise<Bootstrapped> {
  const config = loadConfig(process.env, role);
  await openDataDir(config.dataDir);
  const log = createLogger(config);
  const { installTemporalRuntime } = await import('../telemetry/temporal-runtime.ts');
  await installTemporalRuntime(log);
  if (!config.tracing) return { config, log, tracing: undefined };
  // Loaded on demand: it takes memory, and time to load.
  const { startTracing } = await import('../telemetry/tracing.ts');
  return { config, log, tracing: startTracing(log) };
}

/** Describes who may connect. `names` are those that have a key; undefined if no key is needed. */
export function describeKeys(names: string[] | undefined): string {
  if (!names) return 'not required: only this machine can connect';
  if (names.length === 0) return 'required, and there is none: create one with `everturn keys create`';
  return `required; keys exist for ${names.join(', ')}`;
}
