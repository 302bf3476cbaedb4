import { LRUCache } from 'lru-cache';
import type { ModelProvider } from './provider.ts';
import type { Config } from '../config.ts';

/** How long the result of a model lookup is cached, in milliseconds: for a model that exists, and for one that does not. */
const KNOWN_FOR_MS = 10 * 60_000;
const UNKNOWN_FOR_MS = 10_000;

/** The model providers, by name. */
export class ModelProviders {
  readonly #providers: ReadonlyMap<string, ModelProvider>;
  readonly #default: ModelProvider;
  readonly #known = new LRUCache<string, Promise<boolean>>({ max: 1_000 });

  constructor(defaultProvider: string, providers: Record<string, ModelProvider>) {
    this.#providers = new Map(Object.entries(providers));
    const provider = this.#providers.get(defaultProvider);
    if (!provider) throw new Error(`there is no model provider ${defaultProvider}`);
    this.#default = provider;
  }

  /**
   * The provider of a model, and the model's name at that provider. `<provider>/<model>` names both; a name without the
   * prefix of a known provider is passed to the default one unchanged.
   */
  resolve(name: string): { provider: ModelProvider; model: string } {
    const slash = name.indexOf('/');
    const provider = slash > 0 ? this.#providers.get(name.slice(0, slash)) : undefined;
    return provider ? { provider, model: name.slice(slash + 1) } : { provider: this.#default, model: name };
  }

  /** Whether a model exists, as far as its provider can tell. */
  async has(name: string): Promise<boolean> {
    const known = this.#known.get(name);
    if (known) return known;
    const { provider, model } = this.resolve(name);
    const lookup = provider.has(model);
    this.#known.set(name, lookup, { ttl: KNOWN_FOR_MS });
    const has = await lookup;
    if (!has) this.#known.set(name, lookup, { ttl: UNKNOWN_FOR_MS });
    return has;
  }
}

/** The endpoint of the models, and its key. */
export interface ModelAccess {
  /** The display name of the endpoint. */
  name: string;
  openai: { apiKey: string; baseUrl: string | undefined };
}

/** Access to real models, if a key or a URL is configured. */
export function modelAccess({ openai: { apiKey, baseUrl } }: Pick<Config, 'openai'>): ModelAccess | undefined {
  if (!apiKey && !baseUrl) return undefined;
  // Self-hosted servers often need no key, but the client requires one.
  return { name: baseUrl ?? 'OpenAI', openai: { apiKey: apiKey ?? 'none', baseUrl } };
}
