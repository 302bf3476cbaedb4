import { trace } from '@opentelemetry/api';
import { pino, type DestinationStream, type Logger } from 'pino';
import type { Config } from './config.ts';
import { logScope } from './telemetry/log-scope.ts';

/**
 * Logs as JSON lines, on standard error: standard output is for people. Every line has the ids of the session, the turn
 * and the request that it belongs to. Secrets in headers never get here.
 */
export function createLogger(
  { logLevel: level }: Pick<Config, 'logLevel'>,
  destination: DestinationStream = pino.destination({ dest: 2, sync: true }),
): Logger {
  return pino({ level, base: null, mixin: scopeFields }, destination);
}

function scopeFields(): object {
  const span = trace.getActiveSpan()?.spanContext();
  return { ...logScope(), ...(span && { traceId: span.traceId }) };
}
