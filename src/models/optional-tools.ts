import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { ModelError } from './model-error.ts';
import type { ModelStream } from './provider.ts';

interface OptionalToolsOptions {
  /** The provider's name. */
  name: string;
  log: Pick<Logger, 'warn'>;
}

/** Wraps the calls of a provider: a model that takes no tools is asked without them, if all are the server's own. */
export function withOptionalTools(stream: ModelStream, { name: provider, log }: OptionalToolsOptions): ModelStream {
  /** The models that have refused tools. */
  const without = new LRUCache<string, true>({ max: 1_000 });
  return async function* (request, signal) {
    const { model, hasOptionalTools, tools } = request;
    if (hasOptionalTools !== true || tools.length === 0) return yield* stream(request, signal);
    const bare = { ...request, tools: [] };
    if (without.has(model)) return yield* stream(bare, signal);
    try {
      return yield* stream(request, signal);
    } catch (error) {
      if (!(error instanceof ModelError && error.refusesTools)) throw error;
      without.set(model, true);
      const names = tools.map(({ name }) => name);
      log.warn({ provider, model, tools: names }, 'a model takes no tools, and is asked without the built-in ones');
    }
    return yield* stream(bare, signal);
  };
}
