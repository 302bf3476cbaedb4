import { context, propagation, SpanStatusCode, trace } from '@opentelemetry/api';
import { ApplicationFailure, defaultPayloadConverter } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { TraceContext } from '../core/trace-context.ts';
import { TRACE_HEADER } from '../core/temporal-names.ts';

/**
 * An attempt at an activity is a span of the turn's trace; one of a turn that began without a trace stays without.
 * Unlike the one of Temporal's own interceptors it does not have the words of an error, which are a provider's or a
 * tool's.
 */
export const traceActivity: ActivityInterceptorsFactory = ({ info }) => ({
  inbound: {
    execute: (input, next) => {
      const payload = input.headers[TRACE_HEADER];
      if (!payload) return next(input);
      const carrier = defaultPayloadConverter.fromPayload<TraceContext>(payload);
      const parent = propagation.extract(context.active(), carrier);
      const attributes = { 'everturn.attempt': info.attempt };
      return trace.getTracer('everturn').startActiveSpan(info.activityType, { attributes }, parent, async (span) => {
        try {
          return await next(input);
        } catch (error) {
          span.setStatus({ code: SpanStatusCode.ERROR });
          span.setAttribute('error.type', (error instanceof ApplicationFailure && error.type) || 'error');
          throw error;
        } finally {
          span.end();
        }
      });
    },
  },
});
