import { trace } from '@opentelemetry/api';
import { pino, type DestinationStream, type Logger } from 'pino';
import type { Config } from '../config.ts';
import { redact } from '../lib/redact.ts';
import { logContext } from './log-context.ts';

/**
 * Creates a logger that writes JSON lines to standard error; standard output is for the user. Each line has the ids of
 * its session, turn and request. Keys, passwords and tokens are hidden, wherever in the line they are.
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
