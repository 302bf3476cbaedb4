import { trace } from '@opentelemetry/api';
import { pino, type DestinationStream, type Logger } from 'pino';
import type { Config } from '../config.ts';
import { redact } from '../lib/redact.ts';
import { logContext } from './log-context.ts';

/**
 * Logs as JSON lines, on standard error: standard output is for people. Every line has the ids of the session, the turn
 * and the request that it belongs to. Keys, passwords and tokens are hidden, whoever has put them into the line.
 */
export function createLogger(
  { logLevel: level }: Pick<Config, 'logLevel'>,
  destination: DestinationStream = pino.destination({ dest: 2, sync: true }),
): Logger {
  return pino({ level, base: null, mixin: scopeFields, hooks: { streamWrite: redact } }, destination);
}

function scopeFields(): object {
  const span = trace.getActiveSpan()?.spanContext();
  return { ...logContext(), ...(span && { traceId: span.traceId }) };
}
