import { DefaultLogger, Runtime, type LogLevel, type LogMetadata, type RuntimeOptions } from '@temporalio/worker';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { isUnreadable } from '../encryption/cipher.ts';
import { freePort } from '../lib/processes.ts';
import { deletedSessionIdOf, sessionIdOf, turnIdOf } from '../core/temporal-names.ts';
import type { LogScope } from './log-context.ts';
import { servesTemporalMetrics } from './temporal-metrics.ts';

const MAX_TRIES = 3;

/**
 * Redirects the log of Temporal's SDK to `log`, one level lower because its messages are for developers rather than
 * operators, and turns its metrics on. To be called once per process, before anything else of the SDK is used.
 */
export async function installTemporalRuntime(log: Logger): Promise<void> {
  // The SDK logs the start and end of each activity at DEBUG; these lines are produced only if they are shown.
  const least = log.isLevelEnabled('trace') ? 'DEBUG' : 'INFO';
  const logger = new DefaultLogger(least, ({ level, message, meta = {} }) => {
    // Only this error is logged in full, because it names the missing key; others may quote content.
    const unreadable = isUnreadable(meta['error']) && { err: meta['error'] };
    log[LEVELS[level]]({ ...idsOf(meta), ...meta, ...unreadable }, message);
  });
  for (let tries = 1; ; tries++) {
    const address = `127.0.0.1:${await freePort()}`;
    try {
      // With handlers of its own the SDK stops workers only: an API that has none would ignore its first SIGTERM.
      Runtime.install({ logger, telemetryOptions: telemetryAt(address), shutdownSignals: [] });
      servesTemporalMetrics(`http://${address}/metrics`);
      return;
    } catch (error) {
      // Another process may have taken the port in the meantime.
      if (tries === MAX_TRIES) throw error;
    }
  }
}

/** The SDK serves its metrics on a port of its own, and does not report which if it chooses the port itself. */
function telemetryAt(bindAddress: string): NonNullable<RuntimeOptions['telemetryOptions']> {
  return {
    logging: { filter: 'temporalio_sdk_core=WARN', forward: {} },
    metrics: {
      prometheus: { bindAddress, countersTotalSuffix: true, unitSuffix: true, useSecondsForDurations: true },
    },
  };
}

/** The session and request of the turns that were recently active in this process. */
const origins = new LRUCache<string, Pick<LogScope, 'sessionId' | 'requestId'>>({ max: 2_000 });

/**
 * The ids for a log line of the SDK. Lines from workflows and activities have them. The SDK's own lines name only a
 * workflow; the other ids are those that earlier lines had for it.
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
