import {
  context,
  isSpanContextValid,
  SpanKind,
  SpanStatusCode,
  trace,
  type Context,
  type Span,
} from '@opentelemetry/api';
import { iterateIn } from '../lib/iterate-in.ts';
import { ModelError } from './model-error.ts';
import type { ModelChunk, ModelRequest, ModelStream } from './provider.ts';
import type { Metrics } from '../telemetry/metrics.ts';

/**
 * Wraps the calls of a provider: measures them, and records them as spans of their turns' traces. `name`: the provider's
 * name in OpenTelemetry.
 */
export function instrumented(stream: ModelStream, name: string, metrics: Metrics): ModelStream {
  return async function* (request, signal) {
    const parent = context.active();
    const span = startSpan(request, name, parent);
    const endStep = metrics.steps.begin();
    const stop = metrics.modelCalls.startTimer();
    let outcome = 'cancelled';
    try {
      for await (const chunk of within(trace.setSpan(parent, span), stream(request, signal))) {
        note(span, chunk);
        yield chunk;
      }
      if (!signal.aborted) outcome = 'answered';
    } catch (error) {
      if (!signal.aborted) outcome = error instanceof ModelError ? error.failure : 'error';
      throw error;
    } finally {
      stop({ outcome });
      endStep(outcome === 'answered' ? 'well' : 'badly');
      if (outcome !== 'answered') span.setAttribute('error.type', outcome);
      if (outcome !== 'answered' && outcome !== 'cancelled') span.setStatus({ code: SpanStatusCode.ERROR });
      span.end();
    }
  };
}

function startSpan({ model, params }: ModelRequest, provider: string, parent: Context): Span {
  const { max_tokens: maxTokens, temperature, top_p: topP, top_k: topK } = params;
  const attributes = {
    'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': provider,
    'gen_ai.request.model': model,
    'gen_ai.request.stream': true,
    ...(typeof maxTokens === 'number' && { 'gen_ai.request.max_tokens': maxTokens }),
    ...(typeof temperature === 'number' && { 'gen_ai.request.temperature': temperature }),
    ...(typeof topP === 'number' && { 'gen_ai.request.top_p': topP }),
    ...(typeof topK === 'number' && { 'gen_ai.request.top_k': topK }),
  };
  return trace.getTracer('everturn').startSpan(`chat ${model}`, { kind: SpanKind.CLIENT, attributes }, parent);
}

function note(span: Span, { finishReason, usage }: ModelChunk): void {
  if (finishReason) span.setAttribute('gen_ai.response.finish_reasons', [finishReason]);
  if (!usage) return;
  span.setAttributes({
    'gen_ai.usage.input_tokens': usage.inputTokens,
    'gen_ai.usage.output_tokens': usage.outputTokens,
    'gen_ai.usage.cache_read.input_tokens': usage.cacheReadTokens,
    'gen_ai.usage.reasoning.output_tokens': usage.reasoningTokens,
  });
}

/** Reads the source within a context, if that has a span. */
function within<T>(inside: Context, source: AsyncIterable<T>): AsyncIterable<T> {
  const span = trace.getSpanContext(inside);
  return span && isSpanContextValid(span) ? iterateIn((work) => context.with(inside, work), source) : source;
}
