import { z } from 'zod';
import { ConfigError } from '../config.ts';
import { registerSecrets } from '../lib/redact.ts';
import { secretVariable } from '../lib/secret-variable.ts';
import { readSettingsFile } from '../lib/settings-file.ts';
import { httpHeaders } from '../setting-values.ts';
import { MAX_SILENCE_SECONDS, type SilenceLimits } from './provider.ts';

const perMillion = z.number({ error: 'must be a number of USD per million tokens' }).min(0, 'must not be negative');

/** USD per million tokens. Tokens without a price of their own cost as much as the input or output they are part of. */
const price = z.strictObject({
  input: perMillion,
  cached_input: perMillion.optional(),
  cache_write: perMillion.optional(),
  output: perMillion,
  reasoning: perMillion.optional(),
});

const count = z.int({ error: 'must be a whole number' }).min(1, 'must be at least 1');

/** What is known of a model: its price, and the size of its context. */
const facts = z.strictObject({ price: price.optional(), context_tokens: count.optional() });

const silence = z
  .number({ error: 'must be a number of seconds' })
  .positive('must be a positive number of seconds')
  .max(MAX_SILENCE_SECONDS, `must be at most ${MAX_SILENCE_SECONDS} seconds`);

const limits = z
  .strictObject({
    concurrency: count.optional(),
    requests_per_minute: count.optional(),
    tokens_per_minute: count.optional(),
  })
  .transform(({ concurrency, requests_per_minute: requests, tokens_per_minute: tokens }) => ({
    concurrency: concurrency ?? Infinity,
    requestsPerMinute: requests ?? Infinity,
    tokensPerMinute: tokens ?? Infinity,
  }));

const KINDS = ['openai-chat', 'openai-responses', 'anthropic', 'google', 'mistral'] as const;

/** Another name of `openai-chat`, for servers that are not OpenAI's and therefore have a URL of their own. */
const COMPATIBLE = 'openai-compatible';
const FILE_KINDS = [...KINDS, COMPATIBLE] as const;
const CHAT_KINDS: ReadonlySet<string> = new Set(['openai-chat', COMPATIBLE]);

const MAX_TOKENS_PARAMETERS = ['max_tokens', 'max_completion_tokens'] as const;

const provider = z
  .strictObject({
    kind: z.enum(FILE_KINDS, { error: `must be one of ${FILE_KINDS.join(', ')}` }),
    base_url: z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }).optional(),
    api_key_env: z
      .string({ error: 'must be the name of an environment variable' })
      .regex(/^\w+$/, 'must be the name of an environment variable, not the key itself')
      .optional(),
    headers: httpHeaders,
    limits: limits.optional(),
    first_chunk_seconds: silence.optional(),
    idle_seconds: silence.optional(),
    accepts_slashes: z.boolean({ error: 'must be true or false' }).default(false),
    max_tokens_parameter: z
      .enum(MAX_TOKENS_PARAMETERS, { error: `must be ${MAX_TOKENS_PARAMETERS.join(' or ')}` })
      .optional(),
    models: z.record(z.string().min(1), facts).default({}),
  })
  .refine(({ kind, max_tokens_parameter: parameter }) => parameter === undefined || CHAT_KINDS.has(kind), {
    path: ['max_tokens_parameter'],
    message: 'must be omitted: only chat completions have two names for it',
  })
  .refine(({ kind, base_url: baseUrl }) => kind !== COMPATIBLE || baseUrl !== undefined, {
    path: ['base_url'],
    message: 'must be the URL of the server, with the version, such as http://127.0.0.1:11434/v1',
  });

const providerFile = z
  .strictObject({
    default: z.string().optional(),
    providers: z.record(z.string().regex(/^[\w.-]{1,64}$/), provider, {
      error: 'must be an object of providers by name (1 to 64 letters, digits and . _ -)',
    }),
  })
  .refine(({ default: name, providers }) => name === undefined || Object.hasOwn(providers, name), {
    path: ['default'],
    message: 'must be the name of one of the providers in this file',
  });

export type Price = z.infer<typeof price>;

export type ProviderLimits = z.infer<typeof limits>;

/** A provider as it is configured. */
export interface ProviderConfig extends Partial<SilenceLimits> {
  kind: (typeof KINDS)[number];
  apiKey: string;
  /** Undefined for the provider's own URL. */
  baseUrl: string | undefined;
  headers: Record<string, string>;
  limits: ProviderLimits | undefined;
  /** The models that certainly exist. */
  models: ReadonlyMap<string, z.infer<typeof facts>>;
  /** The name of the limit of output tokens; undefined: by the host. Only chat completions have two names for it. */
  maxTokensParameter?: (typeof MAX_TOKENS_PARAMETERS)[number] | undefined;
  /** Whether it gets, as the default provider, names whose prefix is not the name of a provider. */
  acceptsSlashes: boolean;
}

/** The client libraries require a key; self-hosted servers often need none. */
export const NO_KEY = 'none';

/**
 * Reads the file of `EVERTURN_MODEL_PROVIDERS`: `{"default": "<name>", "providers": {"<name>": {"kind", …}}}`.
 * @throws ConfigError that names the file, the path in it and what is expected there
 */
export async function readProviderFile(
  file: string,
  env: NodeJS.ProcessEnv,
): Promise<{ defaultName: string | undefined; providers: Map<string, ProviderConfig> }> {
  const fail = (problem: string): ConfigError => new ConfigError(`EVERTURN_MODEL_PROVIDERS: ${file}: ${problem}`);
  const parsed = await readSettingsFile(file, { env, schema: providerFile, fail });
  const providers = Object.entries(parsed.providers).map(([name, given]): [string, ProviderConfig] => {
    const { base_url: baseUrl, api_key_env: variable, headers, limits } = given;
    const kind = given.kind === COMPATIBLE ? 'openai-chat' : given.kind;
    const { accepts_slashes: acceptsSlashes, max_tokens_parameter: maxTokensParameter } = given;
    const { first_chunk_seconds: firstChunkSeconds, idle_seconds: idleSeconds } = given;
    const apiKey = variable === undefined ? NO_KEY : secretVariable(env, variable);
    if (!apiKey) throw fail(`providers.${name}.api_key_env: ${variable} is not set`);
    // Header values are credentials in most cases.
    registerSecrets([...(variable === undefined ? [] : [apiKey]), ...Object.values(headers)]);
    const models = new Map(Object.entries(given.models));
    return [
      name,
      {
        kind,
        apiKey,
        baseUrl,
        headers,
        limits,
        models,
        maxTokensParameter,
        acceptsSlashes,
        ...(firstChunkSeconds !== undefined && { firstChunkSeconds }),
        ...(idleSeconds !== undefined && { idleSeconds }),
      },
    ];
  });
  return { defaultName: parsed.default, providers: new Map(providers) };
}
