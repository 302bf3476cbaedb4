import { ConfigError, type Config } from '../config.ts';
import type { Logger } from 'pino';
import type { ModelServer } from '../catalog/model-servers.ts';
import type { Redis } from '../lib/redis.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { localAllowance } from './allowance.ts';
import { limited, type LimitOptions } from './limited-model.ts';
import { redisAllowance } from './redis-allowance.ts';
import { aiSdkProvider } from './ai-sdk/ai-sdk.ts';
import { AUDIO_INPUT } from './audio-input.ts';
import { anthropic } from './anthropic/anthropic.ts';
import { google } from './google/google.ts';
import { instrumented } from './instrumented-model.ts';
import { mistral } from './ai-sdk/mistral.ts';
import { isOpenAI } from './openai/client.ts';
import { OPTIONS_OF, SEARCH_OF } from './model-options.ts';
import { openAIResponsesProvider } from './openai/responses.ts';
import { openAIProvider } from './openai/chat.ts';
import { withOptionalTools } from './optional-tools.ts';
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
  /** Called at each response of a provider, also at an error. */
  onResponse: (server: ModelServer) => void;
}

export function openProviders({ defaultName, providers }: ModelAccess, options: OpenOptions): ModelProviders {
  const opened = [...providers].map(([name, config]) => {
    const server = { providerName: name, baseUrl: config.baseUrl };
    const adapter = adapterFor(config, { ...options, onResponse: () => options.onResponse(server) });
    const measured = instrumented(adapter.stream, name, options.metrics);
    const adapted = withOptionalTools(measured, { name, log: options.log });
    const stream = config.limits ? limited(adapted, limitsOf(name, config.limits, options)) : adapted;
    const registered = {
      provider: { stream, find: adapter.find },
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

function limitsOf(name: string, limits: ProviderLimits, { metrics, log, shared }: OpenOptions): LimitOptions {
  const allowance = shared
    ? redisAllowance({ redis: shared.redis, prefix: `${shared.prefix}model-limits:${name}:`, limits })
    : localAllowance(limits);
  return { allowance, name, log, metrics };
}

function adapterFor(config: ProviderConfig, options: SilenceLimits & { onResponse: () => void }): ModelProvider {
  const { firstChunkSeconds = options.firstChunkSeconds, idleSeconds = options.idleSeconds } = config;
  const common = { firstChunkSeconds, idleSeconds, onResponse: options.onResponse };
  switch (config.kind) {
    case 'openai-chat':
      return openAIProvider({ ...config, ...common });
    case 'openai-responses':
      return openAIResponsesProvider({ ...config, ...common });
    case 'anthropic':
      return aiSdkProvider(anthropic(config), common);
    case 'google':
      return aiSdkProvider(google(config), common);
    case 'mistral':
      return aiSdkProvider(mistral(config), common);
  }
}
