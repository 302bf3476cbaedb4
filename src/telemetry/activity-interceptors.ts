import { context, propagation, SpanStatusCode, trace } from '@opentelemetry/api';
import { ApplicationFailure, defaultPayloadConverter, CancelledFailure } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { TraceContext } from '../core/trace-context.ts';
import { TRACE_HEADER, REQUEST_HEADER, sessionIdOf } from '../core/temporal-names.ts';
import type { Metrics } from './metrics.ts';
import { withLogContext, type LogScope } from './log-context.ts';

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

/**
 * Counts the attempts that throw: what our activities do not want to be tried again they return. Those that died with
 * their worker are counted by the attempt after, of an activity that tells them from others: `callModel`.
 */
export function countRetries(metrics: Metrics): ActivityInterceptorsFactory {
  return ({ info }) => ({
    inbound: {
      execute: async (input, next) => {
        try {
          return await next(input);
        } catch (error) {
          const reason = reasonOf(error);
          if (reason !== undefined) metrics.retries.inc({ activity: info.activityType, reason });
          throw error;
        }
      },
    },
  });
}

/** Undefined if nobody tries again. Our own failures have types of which there are few. */
function reasonOf(error: unknown): string | undefined {
  if (error instanceof CancelledFailure) return undefined;
  if (!(error instanceof ApplicationFailure)) return 'unavailable';
  return error.nonRetryable ? undefined : (error.type ?? 'error');
}

/** Whatever an activity logs, and the SDK of it, says which turn, session and request it is for. */
export const activityScope: ActivityInterceptorsFactory = ({ info }) => {
  const scope: LogScope = {
    activityType: info.activityType,
    attempt: info.attempt,
    ...(info.workflowExecution && { runId: info.workflowExecution.runId }),
  };
  const ofWorkflow = sessionIdOf(info.workflowExecution?.workflowId ?? '');
  return {
    inbound: {
      execute: (input, next) => {
        const payload = input.headers[REQUEST_HEADER];
        if (payload) scope.requestId = defaultPayloadConverter.fromPayload<string>(payload);
        const { sessionId = ofWorkflow, turnId }: LogScope = input.args[0] ?? {};
        return withLogContext(Object.assign(scope, { sessionId, turnId }), () => next(input));
      },
    },
    outbound: {
      // The SDK's own lines about an activity come from outside of its scope.
      getLogAttributes: (input, next) => next({ ...input, ...scope }),
    },
  };
};
