import { type Attributes, context, createContextKey, propagation, type Context } from '@opentelemetry/api';
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

const TURN = createContextKey('turn');

/** Marks the context of a turn's span as the one for `inTurn`. */
export function asTurn(turn: Context): Context {
  return turn.setValue(TURN, turn);
}

/** Runs work that outlives its activity as a part of the turn's span. */
export function inTurn<T>(work: () => T): T {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- set by `asTurn` alone
  const turn = context.active().getValue(TURN) as Context | undefined;
  return turn ? context.with(turn, work) : work();
}
