import { type Attributes, context, propagation } from '@opentelemetry/api';
import type { LogScope } from './log-context.ts';

/** The ids of a span's session, turn and request. OpenTelemetry calls a session a conversation. */
export function scopeAttributes({ sessionId, turnId, requestId }: LogScope): Attributes {
  return {
    ...(sessionId && { 'gen_ai.conversation.id': sessionId, 'everturn.session.id': sessionId }),
    ...(turnId && { 'everturn.turn.id': turnId }),
    ...(requestId && { 'everturn.request.id': requestId }),
  };
}

/** The trace context as headers of an outgoing request; empty if tracing is off. */
export function traceHeaders(): Record<string, string> {
  const headers: Record<string, string> = {};
  propagation.inject(context.active(), headers);
  return headers;
}
