import { pino, type DestinationStream, type Logger } from 'pino';
import { DefaultLogger, Runtime, type LogLevel, type LogMetadata } from '@temporalio/worker';
import { LRUCache } from 'lru-cache';
import type { Config } from './config.ts';
import { logScope, type LogScope } from './telemetry/log-scope.ts';
import { sessionIdOf, turnIdOf } from '../workflows/ids.ts';

/**
 * Logs as JSON lines, on standard error: standard output is for people. Every line has the ids of the session, the turn
 * and the request that it belongs to. Secrets in headers never get here.
 */
export function createLogger(
  { logLevel: level }: Pick<Config, 'logLevel'>,
  destination: DestinationStream = pino.destination({ dest: 2, sync: true }),
): Logger {
  return pino({ level, base: null, mixin: () => ({ ...logScope() }) }, destination);
}

/**
 * Sends what Temporal's SDK has to say to our log, a level lower: its information is for us, not for operators. Once
 * per process, before anything else of the SDK is used.
 */
export function installTemporalLogger(log: Logger): void {
  // It says of each activity when it begins and ends; that is made only for those who want to read it.
  const least = log.isLevelEnabled('trace') ? 'DEBUG' : 'INFO';
  const logger = new DefaultLogger(least, ({ level, message, meta = {} }) =>
    log[LEVELS[level]]({ ...idsOf(meta), ...meta }, message),
  );
  Runtime.install({ logger, telemetryOptions: { logging: { filter: 'temporalio_sdk_core=WARN', forward: {} } } });
}

/** Of the turns that were at work here lately. */
const origins = new LRUCache<string, Pick<LogScope, 'sessionId' | 'requestId'>>({ max: 2_000 });

/**
 * What a line of the SDK belongs to. Those from inside of a workflow or an activity say it; the SDK's own name a
 * workflow, and the rest is known from the others.
 */
function idsOf({ workflowId, sessionId, requestId }: LogMetadata & LogScope): LogScope {
  if (typeof workflowId !== 'string') return {};
  const turnId = turnIdOf(workflowId);
  if (turnId === undefined) return { sessionId: sessionIdOf(workflowId) };
  if (sessionId !== undefined) origins.set(turnId, { sessionId, requestId });
  return { turnId, ...origins.get(turnId) };
}

const LEVELS: Record<LogLevel, 'trace' | 'debug' | 'warn' | 'error'> = {
  TRACE: 'trace',
  DEBUG: 'trace',
  INFO: 'debug',
  WARN: 'warn',
  ERROR: 'error',
};
