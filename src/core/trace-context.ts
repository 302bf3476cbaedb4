import { numberOf } from './ids.ts';

/** Trace context as W3C's headers carry it. */
export interface TraceContext {
  traceparent: string;
  tracestate?: string;
}

/** The span of a turn that has ended. */
export interface TurnSpan {
  parent: TraceContext;
  /** The span of the turn that this one follows, if it is known. */
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
 * The span of a turn, as the parent of all that is done for the turn. Its id comes from the turn's: whoever knows the
 * trace knows it, before the turn has begun and long after, on every worker, and nobody draws a random number for it.
 * Undefined if `parent` is not what W3C's Trace Context says.
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
