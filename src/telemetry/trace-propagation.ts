import { type Attributes, context, propagation } from '@opentelemetry/api';
import type { LogScope } from './log-context.ts';

/** What a span belongs to; a session is what OpenTelemetry calls a conversation. */
export function scopeAttributes({ sessionId, turnId, requestId }: LogScope): Attributes {
  return {
    ...(sessionId && { 'gen_ai.conversation.id': sessionId, 'everturn.session.id': sessionId }),
    ...(turnId && { 'everturn.turn.id': turnId }),
    ...(requestId && { 'everturn.request.id': requestId }),
  };
}

/** Where we are in a trace, as headers for whoever is asked next; none unless traces are recorded. */
export function traceHeaders(): Record<string, string> {
  const headers: Record<string, string> = {};
  propagation.inject(context.active(), headers);
  return headers;
}
