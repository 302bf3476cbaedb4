import {
  context,
  isSpanContextValid,
  SpanKind,
  SpanStatusCode,
  trace,
  type Context,
  type Span,
} from '@opentelemetry/api';
import { ModelError } from './model-error.ts';
import type { FoundModel, ModelChunk, ModelProvider, ModelRequest } from './provider.ts';
import type { Metrics } from '../telemetry/metrics.ts';

/** Wraps a provider: measures its calls and records them as spans of their turns' traces. */
export class InstrumentedModel implements ModelProvider {
  readonly #provider: ModelProvider;
  readonly #name: string;
  readonly #metrics: Metrics;

  /** `name`: the provider's name in OpenTelemetry. */
  constructor(provider: ModelProvider, name: string, metrics: Metrics) {
    this.#provider = provider;
    this.#name = name;
    this.#metrics = metrics;
  }

  async *stream(request: ModelRequest, signal: AbortSignal): AsyncGenerator<ModelChunk> {
    const parent = context.active();
    const span = this.#span(request, parent);
    const endStep = this.#metrics.steps.begin();
    const stop = this.#metrics.modelCalls.startTimer();
    let outcome = 'cancelled';
    try {
      for await (const chunk of within(trace.setSpan(parent, span), this.#provider.stream(request, signal))) {
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
  }

  find(model: string): Promise<FoundModel | undefined> {
    return this.#provider.find(model);
  }

  #span({ model, params }: ModelRequest, parent: Context): Span {
    const { max_tokens: maxTokens, temperature, top_p: topP, top_k: topK } = params;
    const attributes = {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': this.#name,
      'gen_ai.request.model': model,
      'gen_ai.request.stream': true,
      ...(typeof maxTokens === 'number' && { 'gen_ai.request.max_tokens': maxTokens }),
      ...(typeof temperature === 'number' && { 'gen_ai.request.temperature': temperature }),
      ...(typeof topP === 'number' && { 'gen_ai.request.top_p': topP }),
      ...(typeof topK === 'number' && { 'gen_ai.request.top_k': topK }),
    };
    return trace.getTracer('everturn').startSpan(`chat ${model}`, { kind: SpanKind.CLIENT, attributes }, parent);
  }
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

/** Reads the source within a context. By default a generator runs in the context of the code that requests its next value. */
async function* within<T>(inside: Context, source: AsyncIterable<T>): AsyncGenerator<T> {
  const span = trace.getSpanContext(inside);
  if (!span || !isSpanContextValid(span)) {
    yield* source;
    return;
  }
  const iterator = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { done, value } = await context.with(inside, () => iterator.next());
      if (done) return;
      yield value;
    }
  } finally {
    await iterator.return?.();
  }
}
