import type { ModelOptions } from '../spec/agent-spec.ts';
import type { ProviderConfig } from './provider-file.ts';

/** The options that each protocol has. */
export const OPTIONS_OF: Record<ProviderConfig['kind'], ReadonlySet<keyof ModelOptions>> = {
  'openai-chat': new Set(['presence_penalty', 'frequency_penalty', 'seed', 'metadata', 'tool_choice']),
  'openai-responses': new Set(['metadata', 'tool_choice']),
  anthropic: new Set(['tool_choice']),
  google: new Set(['presence_penalty', 'frequency_penalty', 'seed', 'tool_choice']),
};
