import { z } from 'zod';
import { ModelError, type ModelFailure } from './model-error.ts';

/** What a provider has sent instead of a message: in a response, in an event of a stream, or as a message's end. */
interface SentFailure {
  message: string;
  /** The HTTP status of the response; undefined for what is sent inside a stream. */
  status?: number | undefined;
  /** The error object of the body or event, as it was sent. */
  error: unknown;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** Codes that are more specific than the HTTP status beside them, of OpenAI and of providers with its format. */
const BY_CODE = new Map<string, ModelFailure>([
  ['server_is_overloaded', 'overloaded'],
  ['slow_down', 'overloaded'],
  ['engine_overloaded_error', 'overloaded'],
  ['vector_store_timeout', 'timeout'],
  ['rate_limit_exceeded', 'rate_limited'],
  ['context_length_exceeded', 'bad_request'],
  ['exceed_context_size_error', 'bad_request'],
  ['invalid_prompt', 'bad_request'],
  ['model_not_found', 'refused_model'],
  // Mistral, with status 400.
  ['invalid_model', 'refused_model'],
  // An account without credit is not retryable, although its status is that of a rate limit.
  ['insufficient_quota', 'auth'],
  ['exceeded_current_quota_error', 'auth'],
  ['invalid_api_key', 'auth'],
]);

/** Codes and types that are coarser than an HTTP status: they decide only for an error without one. */
const WITHOUT_STATUS = new Map<string, ModelFailure>([
  ['server_error', 'overloaded'],
  ['invalid_request_error', 'bad_request'],
  ['authentication_error', 'auth'],
  ['permission_error', 'auth'],
  ['not_found_error', 'refused_model'],
  ['rate_limit_error', 'rate_limited'],
  ['timeout_error', 'timeout'],
]);

/** `code` of OpenAI, `type` of llama.cpp. */
const TOO_LONG: ReadonlySet<string> = new Set(['context_length_exceeded', 'exceed_context_size_error']);

/** Texts of servers without a code for a request that exceeds the context of its model: the test names the servers. */
const TOO_LONG_TEXTS = [
  'context_length_exceeded',
  'ContextWindowExceeded',
  'maximum context length',
  'maximum prompt length',
  'context window',
  'available context size',
  'exceed context limit',
  'exceeds the context length',
  'with context length of only',
  'prompt is too long',
  'input is too long',
  'input tokens exceed',
  'input token count .*exceeds',
  'exceeded model token limit',
  'reduce the length of the messages',
  'reduce your message size',
  '`inputs` tokens \\+ `max_new_tokens` must be',
];
const TOO_LONG_TEXT = new RegExp(TOO_LONG_TEXTS.join('|'), 'i');

/** Ollama; vLLM, which takes tools if it was started so; OpenRouter; Groq; LiteLLM: see the test. */
const TOOLS_REFUSED = [
  'does not support (?:tools|tool|function)',
  'tool choice requires --enable-auto-tool-choice',
  'endpoints found that support tool use',
  'tool calling[`\'"]? is not supported',
  "does not support parameters: \\[[^\\]]*'tools'",
];
const TOOLS_REFUSED_TEXT = new RegExp(TOOLS_REFUSED.join('|'), 'i');

/** Servers such as LiteLLM have numbers in strings. */
const numeric = z
  .union([
    z.int(),
    z
      .string()
      .regex(/^\d{3}$/)
      .transform(Number),
  ])
  .pipe(z.int().min(400).max(599));

const sentError = z.looseObject({
  code: z.union([z.string(), z.number()]).nullish().catch(null),
  type: z.string().nullish().catch(null),
  param: z.string().nullish().catch(null),
  n_ctx: z.int().min(1).nullish().catch(null),
  /** OpenRouter: the response of the provider behind it. */
  metadata: z.object({ raw: z.string() }).nullish().catch(null),
});

/**
 * The error for a failure that a provider reports. A known code determines its kind, else the status (inside a stream,
 * a code that is a number), else the type.
 */
export function reportedFailure({ message: text, status, error, retryAfterMs, cause }: SentFailure): ModelError {
  const { code, type, param, n_ctx: contextField, metadata } = sentError.safeParse(error).data ?? {};
  const message = metadata ? `${text}: ${metadata.raw}` : text;
  const names = [code, type].filter((name) => typeof name === 'string');
  const httpStatus = status ?? numeric.safeParse(code).data;
  const failure =
    // Groq has the code of a rate limit for a request that is above the limit by itself.
    (status === 413 ? 'bad_request' : undefined) ??
    first(names, BY_CODE) ??
    (httpStatus === undefined ? undefined : failureOfStatus(httpStatus)) ??
    first(names, WITHOUT_STATUS) ??
    'overloaded';
  const isTooLong =
    failure === 'bad_request' && (names.some((name) => TOO_LONG.has(name)) || TOO_LONG_TEXT.test(message));
  const isRefusal = failure === 'bad_request' || failure === 'refused_model';
  return new ModelError(failure, message, {
    refusesTools: isRefusal && TOOLS_REFUSED_TEXT.test(message),
    cause,
    status: httpStatus,
    retryAfterMs,
    isTooLong,
    isExplained: isOwnWord(code) || (typeof param === 'string' && !OF_CONVERSATION.test(param)),
    contextTokens: contextField ?? (isTooLong ? contextIn(message) : undefined),
    ...(contextField && { namesContext: true }),
  });
}

/** The parameters whose length may be what a server rejects. */
const OF_CONVERSATION = /^(messages|input|prompt|contents)/;

/** Whether a code is a word that shows what is wrong, unlike the codes of HTTP. */
function isOwnWord(code: unknown): boolean {
  return typeof code === 'string' && !/^\d*$/.test(code);
}

function first(names: string[], known: ReadonlyMap<string, ModelFailure>): ModelFailure | undefined {
  return known.get(names.find((name) => known.has(name)) ?? '');
}

function failureOfStatus(status: number): ModelFailure | undefined {
  if (status < 300) return undefined;
  if (status === 429) return 'rate_limited';
  if (status === 408 || status === 504) return 'timeout';
  // 402: an account without credit.
  if (status === 401 || status === 402 || status === 403) return 'auth';
  if (status === 404) return 'refused_model';
  if (status === 409 || status >= 500) return 'overloaded';
  return 'bad_request';
}

/** The size of the context, where the text names it. */
const CONTEXT_TEXTS = [
  /maximum context length (?:is|of) (?:only )?(\d+)/i,
  /maximum prompt length is (\d+)/i,
  /context size \((\d+) tokens\)/i,
  /context length of only (\d+)/i,
  /tokens > (\d+) maximum/i,
  /configured limit of (\d+) tokens/i,
  /maximum number of tokens allowed \((\d+)\)/i,
  /exceeded model token limit: (\d+)/i,
];

function contextIn(message: string): number | undefined {
  for (const text of CONTEXT_TEXTS) {
    const [, tokens] = text.exec(message) ?? [];
    if (tokens !== undefined) return Number(tokens);
  }
  return undefined;
}
