import { ConfigError, type Config } from '../config.ts';
import type { Logger } from 'pino';
import type { ModelServer } from '../catalog/model-servers.ts';
import type { Redis } from '../lib/redis.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { LocalAllowance } from './allowance.ts';
import { LimitedModel } from './limited-model.ts';
import { RedisAllowance } from './redis-allowance.ts';
import { AiSdkProvider } from './ai-sdk/ai-sdk.ts';
import { AUDIO_INPUT } from './audio-input.ts';
import { anthropic } from './anthropic/anthropic.ts';
import { google } from './google/google.ts';
import { InstrumentedModel } from './instrumented-model.ts';
import { mistral } from './ai-sdk/mistral.ts';
import { isOpenAI } from './openai/client.ts';
import { OPTIONS_OF, SEARCH_OF } from './model-options.ts';
import { OpenAIResponsesProvider } from './openai/responses.ts';
import { OpenAIProvider } from './openai/chat.ts';
import { OptionalTools } from './optional-tools.ts';
import { NO_KEY, readProviderFile, type ProviderConfig, type ProviderLimits } from './provider-file.ts';
import type { ModelProvider, SilenceLimits } from './provider.ts';
import { ModelProviders } from './providers.ts';

/** The providers that are configured. */
export interface ModelAccess {
  /** Where the models are, for display. */
  name: string;
  /** The provider of model names without a prefix. */
  defaultName: string;
  providers: ReadonlyMap<string, ProviderConfig>;
}

const OPENAI = 'openai';

/**
 * Access to real models, if any is configured: by the file of providers, and by OPENAI_API_KEY or OPENAI_BASE_URL, which
 * define the provider `openai` unless the file does.
 * @throws ConfigError
 */
export async function modelAccess(
  { openai, modelProvidersFile: file }: Pick<Config, 'openai' | 'modelProvidersFile'>,
  env: NodeJS.ProcessEnv = process.env,
): Promise<ModelAccess | undefined> {
  const read = file === undefined ? undefined : await readProviderFile(file, env);
  const providers = new Map([...openaiProvider(openai), ...(read?.providers ?? [])]);
  const [first, ...more] = providers.keys();
  if (first === undefined) return undefined;
  const defaultName = read?.defaultName ?? (providers.has(OPENAI) ? OPENAI : more.length === 0 ? first : undefined);
  if (defaultName === undefined) {
    throw new ConfigError(
      `EVERTURN_MODEL_PROVIDERS: ${file}: default: must be the name of the provider of models without a prefix`,
    );
  }
  return { name: nameOf(providers), defaultName, providers };
}

/** Access to one server with OpenAI's chat completions. */
export function chatAccess(name: string, baseUrl: string): ModelAccess {
  return { name, defaultName: OPENAI, providers: new Map(openaiProvider({ apiKey: undefined, baseUrl })) };
}

function openaiProvider({ apiKey, baseUrl }: Config['openai']): [string, ProviderConfig][] {
  if (!apiKey && !baseUrl) return [];
  const provider: ProviderConfig = {
    kind: 'openai-chat',
    apiKey: apiKey ?? NO_KEY,
    baseUrl,
    headers: {},
    limits: undefined,
    models: new Map(),
    acceptsSlashes: baseUrl !== undefined && !isOpenAI(baseUrl),
  };
  return [[OPENAI, provider]];
}

function nameOf(providers: ReadonlyMap<string, ProviderConfig>): string {
  const only = providers.size === 1 ? providers.get(OPENAI) : undefined;
  return only ? (only.baseUrl ?? 'OpenAI') : [...providers.keys()].join(', ');
}

/** The limits of silence hold for providers without limits of their own. */
interface OpenOptions extends SilenceLimits {
  metrics: Metrics;
  log: Logger;
  /** Connects the workers, so that a provider's limits hold for all of them together; undefined: for this process. */
  shared: { redis: Redis; prefix: string } | undefined;
  /** Called with each answer of a provider, also with an error. */
  onAnswer: (server: ModelServer) => void;
}

export function openProviders({ defaultName, providers }: ModelAccess, options: OpenOptions): ModelProviders {
  const opened = [...providers].map(([name, config]) => {
    const server = { providerName: name, baseUrl: config.baseUrl };
    const adapter = adapterFor(config, { ...options, onAnswer: () => options.onAnswer(server) });
    const measured = new InstrumentedModel(adapter, name, options.metrics);
    const provider = new OptionalTools(measured, { name, log: options.log });
    const registered = {
      provider: limited(provider, { name, limits: config.limits }, options),
      options: OPTIONS_OF[config.kind],
      audioTypes: new Set(AUDIO_INPUT[config.kind].keys()),
      search: SEARCH_OF[config.kind],
      models: config.models,
      baseUrl: config.baseUrl,
      acceptsSlashes: config.acceptsSlashes,
    };
    return [name, registered] as const;
  });
  return new ModelProviders(defaultName, new Map(opened), options);
}

function limited(
  provider: ModelProvider,
  { name, limits }: { name: string; limits: ProviderLimits | undefined },
  { metrics, log, shared }: OpenOptions,
): ModelProvider {
  if (!limits) return provider;
  const allowance = shared
    ? new RedisAllowance({ redis: shared.redis, prefix: `${shared.prefix}model-limits:${name}:`, limits })
    : new LocalAllowance(limits);
  return new LimitedModel(provider, { allowance, name, log, metrics });
}

function adapterFor(config: ProviderConfig, options: SilenceLimits & { onAnswer: () => void }): ModelProvider {
  const { firstChunkSeconds = options.firstChunkSeconds, idleSeconds = options.idleSeconds } = config;
  const common = { firstChunkSeconds, idleSeconds, onAnswer: options.onAnswer };
  switch (config.kind) {
    case 'openai-chat':
      return new OpenAIProvider({ ...config, ...common });
    case 'openai-responses':
      return new OpenAIResponsesProvider({ ...config, ...common });
    case 'anthropic':
      return new AiSdkProvider(anthropic(config), common);
    case 'google':
      return new AiSdkProvider(google(config), common);
    case 'mistral':
      return new AiSdkProvider(mistral(config), common);
  }
}
