import { ModelError } from '../models/model-error.ts';
import type { ModelChunk, ModelProvider, ModelRequest } from '../models/provider.ts';
import type { Metrics } from './metrics.ts';

/** A provider whose calls are measured. */
export class ObservedModel implements ModelProvider {
  readonly #provider: ModelProvider;
  readonly #metrics: Metrics;

  constructor(provider: ModelProvider, metrics: Metrics) {
    this.#provider = provider;
    this.#metrics = metrics;
  }

  async *stream(request: ModelRequest, signal: AbortSignal): AsyncGenerator<ModelChunk> {
    const endStep = this.#metrics.steps.begin();
    const stop = this.#metrics.modelCalls.startTimer();
    let outcome = 'cancelled';
    try {
      yield* this.#provider.stream(request, signal);
      if (!signal.aborted) outcome = 'answered';
    } catch (error) {
      if (!signal.aborted) outcome = error instanceof ModelError ? error.failure : 'error';
      throw error;
    } finally {
      stop({ outcome });
      endStep(outcome === 'answered' ? 'well' : 'badly');
    }
  }

  has(model: string): Promise<boolean> {
    return this.#provider.has(model);
  }
}
