import { numberOf } from './ids.ts';

/** Trace context in the form of W3C's headers. */
export interface TraceContext {
  traceparent: string;
  tracestate?: string;
}

/** The span of a turn that has ended. */
export interface TurnSpan {
  parent: TraceContext;
  /** The span of the previous turn, if it is known. */
  previous?: TraceContext;
  turnId: string;
  sessionId: string;
  /** Milliseconds since 1970. */
  startedAt: number;
  endedAt: number;
  status: string;
}

const SPAN_ID_BITS = 64;

/**
 * The span of a turn, which is the parent of all spans of the turn. Its id derives from the turn's id, so every worker
 * that has the trace can derive the span, before the turn starts and after it ends, without a random number. Undefined
 * if `parent` is not valid W3C Trace Context.
 */
export function turnContext(parent: TraceContext, turnId: string): TraceContext | undefined {
  const [, trace, flags] = /^00-([\da-f]{32})-[\da-f]{16}-([\da-f]{2})$/.exec(parent.traceparent) ?? [];
  if (trace === undefined) return undefined;
  return { ...parent, traceparent: `00-${trace}-${spanIdOf(turnId)}-${flags}` };
}

/** The last 64 bits of a turn's ULID, all of them random, in hex. */
export function spanIdOf(turnId: string): string {
  const bits = BigInt.asUintN(SPAN_ID_BITS, numberOf(turnId.slice(-13)));
  return bits.toString(16).padStart(16, '0');
}
