import type { ModelOptions, WebSearch } from '../spec/agent-spec.ts';
import type { ProviderConfig } from './provider-file.ts';

/** The options that each protocol has, or replaces by an equivalent. */
export const OPTIONS_OF: Record<ProviderConfig['kind'], ReadonlySet<keyof ModelOptions>> = {
  'openai-chat': new Set([
    'presence_penalty',
    'frequency_penalty',
    'seed',
    'metadata',
    'tool_choice',
    'reasoning_tokens',
    'modalities',
    'audio',
  ]),
  'openai-responses': new Set(['metadata', 'tool_choice', 'reasoning_tokens']),
  anthropic: new Set(['tool_choice', 'reasoning_tokens']),
  google: new Set(['presence_penalty', 'frequency_penalty', 'seed', 'tool_choice', 'reasoning_tokens', 'image_output']),
  mistral: new Set(['presence_penalty', 'frequency_penalty', 'seed', 'tool_choice', 'reasoning_tokens']),
};

/** The options that the web search of each protocol has; undefined for one without a search. */
export const SEARCH_OF: Record<ProviderConfig['kind'], ReadonlySet<keyof WebSearch> | undefined> = {
  'openai-chat': undefined,
  'openai-responses': new Set(['allowed_domains', 'max_uses', 'user_location']),
  anthropic: new Set(['allowed_domains', 'max_uses', 'user_location']),
  google: new Set(),
  mistral: undefined,
};
