import type { Logger } from 'pino';
import { loadConfig, type Config, type ProcessRole } from '../config.ts';
import { openDataDir } from '../lib/data-dir.ts';
import { createLogger } from '../telemetry/logger.ts';
import { installTemporalRuntime } from '../telemetry/temporal-runtime.ts';
import type { Tracing } from '../telemetry/tracing.ts';

export interface Begun {
  config: Config;
  log: Logger;
  tracing: Tracing | undefined;
}

/** What every process that serves begins with, before anything else: settings, data folder, log, metrics and traces. */
export async function beginProcess(role: ProcessRole): Promise<Begun> {
  const config = loadConfig(process.env, role);
  await openDataDir(config.dataDir);
  const log = createLogger(config);
  await installTemporalRuntime(log);
  if (!config.tracing) return { config, log, tracing: undefined };
  // It takes memory, and time to load.
  const { startTracing } = await import('../telemetry/tracing.ts');
  return { config, log, tracing: startTracing(log) };
}
