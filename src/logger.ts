import { pino, type Logger } from 'pino';
import { DefaultLogger, Runtime, type LogLevel } from '@temporalio/worker';
import type { Config } from './config.ts';

/** Logs as JSON lines, on standard error: standard output is for people. Secrets in headers never get here. */
export function createLogger({ logLevel: level }: Pick<Config, 'logLevel'>): Logger {
  return pino({ level, base: null }, pino.destination({ dest: 2, sync: true }));
}

/**
 * Sends what Temporal's SDK has to say to our log, a level lower: its information is for us, not for operators. Once
 * per process, before anything else of the SDK is used.
 */
export function installTemporalLogger(log: Logger): void {
  const logger = new DefaultLogger('INFO', ({ level, message, meta }) => log[LEVELS[level]]({ ...meta }, message));
  Runtime.install({ logger, telemetryOptions: { logging: { filter: 'temporalio_sdk_core=WARN', forward: {} } } });
}

const LEVELS: Record<LogLevel, 'trace' | 'debug' | 'warn' | 'error'> = {
  TRACE: 'trace',
  DEBUG: 'trace',
  INFO: 'debug',
  WARN: 'warn',
  ERROR: 'error',
};
