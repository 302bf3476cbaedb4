import type { Logger } from 'pino';
import { loadConfig, type Config, type ProcessRole } from '../config.ts';
import { openDataDir } from '../lib/data-dir.ts';
import { createLogger } from '../telemetry/logger.ts';
import { installTemporalRuntime } from '../telemetry/temporal-runtime.ts';
import type { Tracing } from '../telemetry/tracing.ts';

/** What runs until it is told to stop. */
export interface Running {
  /** Rejects if it can't go on; settles when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

/** Lets it run until a signal asks for its end, then stops it. Rejects if it can't go on. */
export async function runUntilSignal(running: Running): Promise<void> {
  const signal = new Promise<void>((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM'] as const) {
      process.once(name, () => {
        // Who asks twice does not want to wait; nothing is lost by it.
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

/** What every process that serves begins with, before anything else: settings, data folder, log, metrics and traces. */
export async function bootstrap(role: ProcessRole): Promise<Bootstrapped> {
  const config = loadConfig(process.env, role);
  await openDataDir(config.dataDir);
  const log = createLogger(config);
  await installTemporalRuntime(log);
  if (!config.tracing) return { config, log, tracing: undefined };
  // It takes memory, and time to load.
  const { startTracing } = await import('../telemetry/tracing.ts');
  return { config, log, tracing: startTracing(log) };
}

/** What a greeting says of keys. `names` get in; undefined if everybody does. */
export function describeKeys(names: string[] | undefined): string {
  if (!names) return 'none needed: only this machine can connect';
  if (names.length === 0) return 'needed, and nobody has one: `everturn keys create` makes one';
  return `needed; these get in: ${names.join(', ')}`;
}
