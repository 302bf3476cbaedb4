import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { ModelError } from './model-error.ts';
import type { FoundModel, ModelChunk, ModelProvider, ModelRequest } from './provider.ts';

interface OptionalToolsOptions {
  /** The provider's name. */
  name: string;
  log: Pick<Logger, 'warn'>;
}

/** Wraps a provider: a model that takes no tools is asked without them, if all are the server's own. */
export class OptionalTools implements ModelProvider {
  readonly #provider: ModelProvider;
  readonly #options: OptionalToolsOptions;
  /** The models that have refused tools. */
  readonly #without = new LRUCache<string, true>({ max: 1_000 });

  constructor(provider: ModelProvider, options: OptionalToolsOptions) {
    this.#provider = provider;
    this.#options = options;
  }

  async *stream(request: ModelRequest, signal: AbortSignal): AsyncGenerator<ModelChunk> {
    const { model, hasOptionalTools, tools } = request;
    if (hasOptionalTools !== true || tools.length === 0) return yield* this.#provider.stream(request, signal);
    const bare = { ...request, tools: [] };
    if (this.#without.has(model)) return yield* this.#provider.stream(bare, signal);
    try {
      return yield* this.#provider.stream(request, signal);
    } catch (error) {
      if (!(error instanceof ModelError && error.refusesTools)) throw error;
      this.#without.set(model, true);
      const names = tools.map(({ name }) => name);
      this.#options.log.warn(
        { provider: this.#options.name, model, tools: names },
        'a model takes no tools, and is asked without the built-in ones',
      );
    }
    return yield* this.#provider.stream(bare, signal);
  }

  find(model: string): Promise<FoundModel | undefined> {
    return this.#provider.find(model);
  }
}
