import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { ModelServer } from '../catalog/model-servers.ts';
import type { Usage } from '../core/records/usage.ts';
import { OnceLog } from '../lib/once-log.ts';
import { nearestName } from '../lib/nearest-name.ts';
import type { ModelOptions, WebSearch } from '../spec/agent-spec.ts';
import type { FoundModel, ModelProvider } from './provider.ts';
import type { Price, ProviderConfig } from './provider-file.ts';

/** How long the result of a model lookup is cached, in milliseconds: for a model that exists, and for one that does not. */
const KNOWN_FOR_MS = 10 * 60_000;
const UNKNOWN_FOR_MS = 10_000;

/** The maximum number of models in each of the caches. */
const MAX_MODELS = 1_000;

/** How many of a provider's models an error or a warning names. */
const MAX_NAMED = 10;

/** A smaller context than any model has: a server that names one must not have every step compacted. */
export const MIN_CONTEXT_TOKENS = 1_024;

/** A provider, what its protocol has, and the models that certainly exist, with what is known of them. */
interface RegisteredProvider extends Pick<ProviderConfig, 'models' | 'acceptsSlashes'>, Pick<ModelServer, 'baseUrl'> {
  provider: ModelProvider;
  options: ReadonlySet<keyof ModelOptions>;
  /** The types of audio that it takes in messages of users. */
  audioTypes: ReadonlySet<string>;
  /** The options that its web search has; undefined if it has no search. */
  search?: ReadonlySet<keyof WebSearch> | undefined;
}

/** A model of a provider. */
export interface ModelTarget extends ModelServer, Omit<RegisteredProvider, 'models' | 'acceptsSlashes'> {
  /** The model's name at that provider. */
  model: string;
  /** What a call costs in USD; undefined if the model's price is unknown. */
  cost: (usage: Usage) => number | undefined;
  /** The size of the model's context; undefined if it is unknown. */
  contextTokens?: number | undefined;
  /** The same if an error or a truncation by its server has shown it: a longer request cannot work. */
  shownTokens?: number | undefined;
}

/** The model providers, by name. */
export class ModelProviders {
  readonly #providers: ReadonlyMap<string, RegisteredProvider>;
  readonly #defaultName: string;
  readonly #default: RegisteredProvider;
  readonly #known = new LRUCache<string, Promise<FoundModel | undefined>>({ max: MAX_MODELS });
  /** The sizes of contexts that servers have shown in errors or by truncations, by the provider and its model. */
  readonly #contexts = new LRUCache<string, number>({ max: MAX_MODELS });
  /** The sizes of contexts in the lists of providers. */
  readonly #listedContexts = new LRUCache<string, number>({ max: MAX_MODELS });
  /** The models that `learnContext` has looked up. */
  readonly #asked = new LRUCache<string, true>({ max: MAX_MODELS });
  /** What to suggest instead of the models that their providers do not list. */
  readonly #alternatives = new LRUCache<string, string>({ max: MAX_MODELS });
  readonly #log: OnceLog;

  constructor(
    defaultName: string,
    providers: ReadonlyMap<string, RegisteredProvider>,
    { log }: { log: Pick<Logger, 'warn'> },
  ) {
    this.#providers = providers;
    this.#log = new OnceLog(log);
    const provider = providers.get(defaultName);
    if (!provider) throw new Error(`there is no model provider ${defaultName}`);
    this.#defaultName = defaultName;
    this.#default = provider;
  }

  /**
   * The provider of a model, and the model's name at that provider. `<provider>/<model>` names both; a name without a
   * prefix is passed to the default one unchanged. So is a name with a `prefixProblem`, which is logged once: agents
   * that were stored before that rule existed still run.
   */
  resolve(name: string): ModelTarget {
    const { registered, providerName, model } = this.#find(name);
    const problem = this.prefixProblem(name);
    if (problem !== undefined) {
      const fields = { model: name, provider: providerName };
      this.#log.warn(name, fields, `a model goes to the default provider: ${problem}`);
    }
    const key = `${providerName}/${model}`;
    const shownTokens = this.#contexts.get(key);
    const { models, acceptsSlashes: _, ...own } = registered;
    const { price, context_tokens: contextTokens } = models.get(model) ?? {};
    return {
      ...own,
      providerName,
      model,
      cost: (usage) => (price ? costOf(usage, price) : undefined),
      contextTokens: shownTokens ?? contextTokens ?? this.#listedContexts.get(key),
      shownTokens,
    };
  }

  /** Records the size of a context that an error or a truncation has shown. It overrides the file of providers. */
  noteContext({ providerName, model }: Pick<ModelTarget, 'providerName' | 'model'>, tokens: number): void {
    this.#contexts.set(`${providerName}/${model}`, Math.max(MIN_CONTEXT_TOKENS, tokens));
  }

  /**
   * Asks the provider of a model for the size of its context, unless that is known, for the calls after the one in
   * progress: a process that only runs stored agents has not looked up their models. Once for each model, but after a
   * failure again in `KNOWN_FOR_MS`.
   */
  async learnContext({ providerName, model, contextTokens }: ModelTarget): Promise<void> {
    const key = `${providerName}/${model}`;
    if (contextTokens !== undefined || this.#asked.has(key)) return;
    this.#asked.set(key, true);
    if (!(await this.#lookUp(key))) this.#asked.set(key, true, { ttl: KNOWN_FOR_MS });
  }

  /**
   * Why an agent may not use this name of a model: its prefix is the name of no provider, so the conversation would go
   * to another provider than was meant. Undefined if it may.
   */
  prefixProblem(name: string): string | undefined {
    const [prefix, model] = splitAtSlash(name);
    const isDefaultsOwn = this.#default.acceptsSlashes || this.#default.models.has(name);
    if (prefix === undefined || this.#providers.has(prefix) || isDefaultsOwn) return undefined;
    const names = [...this.#providers.keys()];
    const near = nearestName(prefix, names);
    const problem = `no model provider has the name ${JSON.stringify(prefix)}`;
    if (near !== undefined) return `${problem}: did you mean ${near}/${model}?`;
    return (
      `${problem}: the names are ${names.join(', ')}; for a model of ${this.#defaultName} that has a slash in its name, ` +
      `write ${this.#defaultName}/${name}, or set "accepts_slashes" of this provider in EVERTURN_MODEL_PROVIDERS`
    );
  }

  /** Whether a model exists; true if the lookup at its provider has no result. */
  async has(name: string): Promise<boolean> {
    const { registered, providerName, model } = this.#find(name);
    if (registered.models.has(model)) return true;
    const found = await this.#lookUp(`${providerName}/${model}`);
    return found?.exists ?? true;
  }

  /** The models to suggest if `has` has found that a provider does not list the model; otherwise undefined. */
  alternatives(name: string): string | undefined {
    const { registered, providerName, model } = this.#find(name);
    return registered.models.has(model) ? undefined : this.#alternatives.get(`${providerName}/${model}`);
  }

  async #lookUp(key: string): Promise<FoundModel | undefined> {
    const known = this.#known.get(key);
    if (known) return known;
    const { registered, providerName, model } = this.#find(key);
    const lookup = registered.provider.find(model);
    this.#known.set(key, lookup, { ttl: KNOWN_FOR_MS });
    const found = await lookup;
    const { exists = true, contextTokens, others = [] } = found ?? {};
    if (!exists) this.#known.set(key, lookup, { ttl: UNKNOWN_FOR_MS });
    if (contextTokens !== undefined) this.#listedContexts.set(key, Math.max(MIN_CONTEXT_TOKENS, contextTokens));
    if (others.length > 0) this.#alternatives.set(key, alternativesOf(model, others, providerName));
    else this.#alternatives.delete(key);
    return found;
  }

  #find(name: string): { registered: RegisteredProvider; providerName: string; model: string } {
    const [prefix, model] = splitAtSlash(name);
    const registered = prefix === undefined ? undefined : this.#providers.get(prefix);
    return prefix !== undefined && registered
      ? { registered, providerName: prefix, model }
      : { registered: this.#default, providerName: this.#defaultName, model: name };
  }
}

function alternativesOf(model: string, others: string[], providerName: string): string {
  const near = nearestName(model, others);
  if (near !== undefined) return `did you mean ${providerName}/${near}?`;
  const more = others.length > MAX_NAMED ? ', …' : '';
  return `it lists ${others.slice(0, MAX_NAMED).join(', ')}${more}`;
}

function splitAtSlash(name: string): [prefix: string | undefined, model: string] {
  const slash = name.indexOf('/');
  return slash < 0 ? [undefined, name] : [name.slice(0, slash), name.slice(slash + 1)];
}

/** What a model call costs, in USD. The counts of cached and reasoning tokens are parts of those of input and output. */
function costOf(usage: Usage, { input, output, ...price }: Price): number {
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens } = usage;
  const perMillion =
    Math.max(0, inputTokens - cacheReadTokens - cacheWriteTokens) * input +
    cacheReadTokens * (price.cached_input ?? input) +
    cacheWriteTokens * (price.cache_write ?? input) +
    Math.max(0, outputTokens - reasoningTokens) * output +
    reasoningTokens * (price.reasoning ?? output);
  return perMillion / 1_000_000;
}
