import { DefaultLogger, Runtime, type LogLevel, type LogMetadata, type RuntimeOptions } from '@temporalio/worker';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { isUnreadable } from '../encryption/cipher.ts';
import { freePort } from '../lib/processes.ts';
import { deletedSessionIdOf, sessionIdOf, turnIdOf } from '../core/temporal-names.ts';
import type { LogScope } from './log-context.ts';

/** Where the SDK's native part serves its metrics; nobody else is told. */
let metricsUrl: string | undefined;

const MAX_TRIES = 3;
const METRICS_TIMEOUT_MS = 2_000;

/**
 * Sends what Temporal's SDK has to say to our log, a level lower: its information is for us, not for operators. And has
 * it count. Once per process, before anything else of the SDK is used.
 */
export async function installTemporalRuntime(log: Logger): Promise<void> {
  // It says of each activity when it begins and ends; that is made only for those who want to read it.
  const least = log.isLevelEnabled('trace') ? 'DEBUG' : 'INFO';
  const logger = new DefaultLogger(least, ({ level, message, meta = {} }) => {
    // Others may quote what was said; of this one it has to be known which key a workflow lacks.
    const unreadable = isUnreadable(meta['error']) && { err: meta['error'] };
    log[LEVELS[level]]({ ...idsOf(meta), ...meta, ...unreadable }, message);
  });
  for (let tries = 1; ; tries++) {
    const address = `127.0.0.1:${await freePort()}`;
    try {
      Runtime.install({ logger, telemetryOptions: telemetryAt(address) });
      metricsUrl = `http://${address}/metrics`;
      return;
    } catch (error) {
      // Somebody else may have taken the port in the meantime.
      if (tries === MAX_TRIES) throw error;
    }
  }
}

/** What the SDK has counted in this process, in Prometheus' text format. */
export async function temporalMetrics(): Promise<string> {
  if (metricsUrl === undefined) return '';
  const response = await fetch(metricsUrl, { signal: AbortSignal.timeout(METRICS_TIMEOUT_MS) });
  return response.text();
}

/** It listens on a port of its own, and can not tell which if it may choose. */
function telemetryAt(bindAddress: string): NonNullable<RuntimeOptions['telemetryOptions']> {
  return {
    logging: { filter: 'temporalio_sdk_core=WARN', forward: {} },
    metrics: {
      prometheus: { bindAddress, countersTotalSuffix: true, unitSuffix: true, useSecondsForDurations: true },
    },
  };
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
  if (turnId === undefined) return { sessionId: sessionIdOf(workflowId) ?? deletedSessionIdOf(workflowId) };
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
