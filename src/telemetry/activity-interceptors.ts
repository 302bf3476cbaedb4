import { context, propagation, SpanStatusCode, trace } from '@opentelemetry/api';
import { ApplicationFailure, defaultPayloadConverter, CancelledFailure } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { TraceContext } from '../core/trace-context.ts';
import { TRACE_HEADER, REQUEST_HEADER, sessionIdOf } from '../core/temporal-names.ts';
import type { Metrics } from './metrics.ts';
import { withLogContext, type LogScope } from './log-context.ts';
import { asTurn } from './trace-propagation.ts';

/**
 * Records each attempt at an activity as a span of the turn's trace; turns that began without a trace stay without.
 * Unlike Temporal's own interceptor it omits error messages, which contain text from providers and tools.
 */
export const traceActivity: ActivityInterceptorsFactory = ({ info }) => ({
  inbound: {
    execute: (input, next) => {
      const payload = input.headers[TRACE_HEADER];
      if (!payload) return next(input);
      const carrier = defaultPayloadConverter.fromPayload<TraceContext>(payload);
      const parent = asTurn(propagation.extract(context.active(), carrier));
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
 * Counts the attempts that throw, which are those to be retried: activities return their final failures. Attempts that
 * died with their worker are counted by the next attempt, in `callModel`, the only activity that can detect them.
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

/** Undefined if there is no retry. The values are bounded, since the project's own failures have few types. */
function reasonOf(error: unknown): string | undefined {
  if (error instanceof CancelledFailure) return undefined;
  if (!(error instanceof ApplicationFailure)) return 'unavailable';
  return error.nonRetryable ? undefined : (error.type ?? 'error');
}

/** Adds the ids of turn, session and request to the log lines of an activity and of the SDK about it. */
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
      // The SDK's own lines about an activity are logged outside of its context.
      getLogAttributes: (input, next) => next({ ...input, ...scope }),
    },
  };
};
