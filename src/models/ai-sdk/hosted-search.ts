import type {
  LanguageModelV4Message,
  LanguageModelV4ProviderTool,
  LanguageModelV4StreamPart,
  SharedV4ProviderOptions,
} from '@ai-sdk/provider';
import type { Citation, HostedPart } from '../../core/sections.ts';
import type { WebSearch } from '../../spec/agent-spec.ts';
import type { ModelChunk } from '../provider.ts';

export type AssistantPart = Extract<LanguageModelV4Message, { role: 'assistant' }>['content'][number];

/** The web search of a provider whose protocol an adapter of the AI SDK speaks. */
export interface HostedSearch {
  tool: (options: WebSearch) => LanguageModelV4ProviderTool;
  /** Reads the searches of one message from the parts of its stream. */
  reader: () => (part: LanguageModelV4StreamPart) => ModelChunk | undefined;
  /** The citations in the fields of a text. */
  cited?: (fields: Record<string, unknown>) => Citation[];
  /** What the provider did in an earlier message, as it expects it back; undefined if it cannot be sent. */
  sent: (hosted: HostedPart, fields: Record<string, unknown>) => AssistantPart | undefined;
  /** The fields of a text with these citations. */
  citing?: (citations: Citation[]) => SharedV4ProviderOptions[string];
}
