import { createAnthropic } from '@ai-sdk/anthropic';
import { z } from 'zod';
import type { Dialect } from '../ai-sdk/ai-sdk.ts';
import { AnthropicPause } from './pause.ts';
import { anthropicSearch } from './search.ts';
import { ModelError } from '../model-error.ts';
import type { ProviderAccess } from '../provider.ts';

const DEFAULT_URL = 'https://api.anthropic.com/v1';

/** Smaller budgets are rejected. */
const MIN_THINKING_TOKENS = 1_024;

/** The event at the beginning of a message counts the input, the one at its end the output. */
const messageStart = z.object({
  type: z.literal('message_start'),
  message: z.object({
    usage: z.object({
      input_tokens: z.number(),
      output_tokens: z.number().default(0),
      cache_read_input_tokens: z.number().nullish(),
      cache_creation_input_tokens: z.number().nullish(),
    }),
  }),
});

const cacheControl = z.object({ type: z.literal('ephemeral'), ttl: z.enum(['5m', '1h']).exactOptional() }).nullish();

const stopDetails = z.object({ stopDetails: z.object({ explanation: z.string() }) });

/** Anthropic's messages. */
export function anthropic({ apiKey, baseUrl = DEFAULT_URL, headers }: ProviderAccess): Dialect {
  return {
    key: 'anthropic',
    search: anthropicSearch,
    model: (id, fetch) => createAnthropic({ apiKey, baseURL: baseUrl, headers, fetch })(id),
    options: ({ params, options }) => ({
      ...(params.parallel_tool_calls === false && { disableParallelToolUse: true }),
      ...(options?.reasoning_tokens !== undefined && {
        thinking: { type: 'enabled', budgetTokens: Math.max(MIN_THINKING_TOKENS, options.reasoning_tokens) },
      }),
    }),
    cached: ({ params }) => {
      const parsed = cacheControl.safeParse(params.cache_control);
      if (parsed.success) return parsed.data ? { cacheControl: parsed.data } : undefined;
      throw new ModelError(
        'bad_request',
        'cache_control must be {"type": "ephemeral"}, with a ttl of "5m" or "1h" or none',
      );
    },
    paused: () => new AnthropicPause(),
    usageIn: (event) => {
      const parsed = messageStart.safeParse(event);
      if (!parsed.success) return undefined;
      const { usage } = parsed.data.message;
      const cacheReadTokens = usage.cache_read_input_tokens ?? 0;
      const cacheWriteTokens = usage.cache_creation_input_tokens ?? 0;
      return {
        inputTokens: usage.input_tokens + cacheReadTokens + cacheWriteTokens,
        outputTokens: usage.output_tokens,
        cacheReadTokens,
        cacheWriteTokens,
        reasoningTokens: 0,
      };
    },
    refusalIn: (metadata) => stopDetails.safeParse(metadata).data?.stopDetails.explanation,
    lookup: {
      url: `${baseUrl}/models`,
      ownHeaders: { 'x-api-key': apiKey, 'anthropic-version': '2023-06-01' },
      headers,
    },
  };
}
