import { context, propagation, SpanStatusCode, type Span, type Tracer } from '@opentelemetry/api';
import type { WorkflowClientInterceptor } from '@temporalio/client';
import { defaultPayloadConverter, type Headers } from '@temporalio/common';
import { errorMessage } from '../lib/errors.ts';
import { TRACE_HEADER } from '../core/temporal-names.ts';

/**
 * An interceptor for Temporal's client: each command is a span, and what it starts is in its trace. The names are those of
 * Temporal's own interceptors, which exist for OpenTelemetry 1 and, for older versions of Temporal's SDK only, for
 * OpenTelemetry 2.
 */
export function commandSpans(tracer: Tracer): WorkflowClientInterceptor {
  const record = <T>(name: string, workflowId: string, command: (span: Span) => Promise<T>): Promise<T> =>
    tracer.startActiveSpan(name, { attributes: { temporalWorkflowId: workflowId } }, async (span) => {
      try {
        const output = await command(span);
        span.setStatus({ code: SpanStatusCode.OK });
        return output;
      } catch (error) {
        const message = errorMessage(error);
        span.setStatus({ code: SpanStatusCode.ERROR, message });
        span.recordException(error instanceof Error ? error : message);
        throw error;
      } finally {
        span.end();
      }
    });
  return {
    startWithDetails: (input, next) =>
      record(`StartWorkflow:${input.workflowType}`, input.options.workflowId, async (span) => {
        const output = await next({ ...input, headers: traced(input.headers) });
        span.setAttribute('run_id', output.runId);
        return output;
      }),
    signal: (input, next) =>
      record(`SignalWorkflow:${input.signalName}`, input.workflowExecution.workflowId, () =>
        next({ ...input, headers: traced(input.headers) }),
      ),
    startUpdateWithStart: (input, next) =>
      record(`UpdateWithStartWorkflow:${input.updateName}`, input.workflowStartOptions.workflowId, async (span) => {
        const { updateId } = input.updateOptions;
        if (updateId) span.setAttribute('temporalUpdateId', updateId);
        const workflowStartHeaders = traced(input.workflowStartHeaders);
        const output = await next({ ...input, workflowStartHeaders, updateHeaders: traced(input.updateHeaders) });
        if (output.workflowExecution.runId) span.setAttribute('run_id', output.workflowExecution.runId);
        return output;
      }),
  };
}

/** Headers with the current trace. */
function traced(headers: Headers): Headers {
  const carrier = {};
  propagation.inject(context.active(), carrier);
  return { ...headers, [TRACE_HEADER]: defaultPayloadConverter.toPayload(carrier) };
}
