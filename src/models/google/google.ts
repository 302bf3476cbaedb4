import { createGoogle } from '@ai-sdk/google';
import { z } from 'zod';
import { mediaUsage, type MediaTokens } from '../../core/records/usage.ts';
import type { Dialect } from '../ai-sdk/ai-sdk.ts';
import { AUDIO_INPUT } from '../audio-input.ts';
import { googleSearch } from './search.ts';
import type { ProviderAccess } from '../provider.ts';

const DEFAULT_URL = 'https://generativelanguage.googleapis.com/v1beta';

const modalities = z
  .array(z.object({ modality: z.string(), tokenCount: z.number().default(0) }))
  .nullish()
  .catch(null);

const mediaCounts = z.object({
  promptTokensDetails: modalities,
  toolUsePromptTokensDetails: modalities,
  cacheTokensDetails: modalities,
  candidatesTokensDetails: modalities,
});

/** Every event counts the tokens so far. */
const counted = z.object({
  usageMetadata: z.object({
    promptTokenCount: z.number().default(0),
    toolUsePromptTokenCount: z.number().default(0),
    candidatesTokenCount: z.number().default(0),
    thoughtsTokenCount: z.number().default(0),
    cachedContentTokenCount: z.number().default(0),
    ...mediaCounts.shape,
  }),
});

/** A message that ends with a continuation is continued by another request. */
const ended = z.object({
  candidates: z.tuple([z.object({ finishReason: z.string().refine((reason) => reason !== 'CONTINUATION') })]),
});

/** Google's Gemini API. */
export function google({ apiKey, baseUrl = DEFAULT_URL, headers }: ProviderAccess): Dialect {
  return {
    key: 'google',
    search: googleSearch,
    model: (id, fetch) => createGoogle({ apiKey, baseURL: baseUrl, headers, fetch })(id),
    options: ({ params: { reasoning_effort: effort }, options = {} }) => {
      const { reasoning_tokens: thinkingBudget, image_output: drawsImages } = options;
      // Thoughts of a model that does not think are rejected.
      const thinks = effort && effort !== 'none' && thinkingBudget !== 0;
      return {
        ...((thinks || thinkingBudget !== undefined) && {
          thinkingConfig: {
            ...(thinks && { includeThoughts: true }),
            ...(thinkingBudget !== undefined && { thinkingBudget }),
          },
        }),
        ...(drawsImages && { responseModalities: ['TEXT', 'IMAGE'] }),
      };
    },
    audioTypes: AUDIO_INPUT.google,
    isLast: (event) => ended.safeParse(event).success,
    usageIn: (event) => {
      const parsed = counted.safeParse(event);
      if (!parsed.success) return undefined;
      const { usageMetadata: usage } = parsed.data;
      return {
        inputTokens: usage.promptTokenCount + usage.toolUsePromptTokenCount,
        outputTokens: usage.candidatesTokenCount + usage.thoughtsTokenCount,
        cacheReadTokens: usage.cachedContentTokenCount,
        cacheWriteTokens: 0,
        reasoningTokens: usage.thoughtsTokenCount,
        ...mediaUsage(mediaOf(usage)),
      };
    },
    mediaIn: (usage) => {
      const parsed = mediaCounts.safeParse(usage);
      return parsed.success ? mediaOf(parsed.data) : {};
    },
    lookup: { url: `${baseUrl}/models`, ownHeaders: { 'x-goog-api-key': apiKey }, headers },
  };
}

function mediaOf(usage: z.infer<typeof mediaCounts>): MediaTokens {
  const count = (modality: string, ...details: z.infer<typeof modalities>[]): number =>
    details.flatMap((one) => one ?? []).reduce((sum, one) => sum + (one.modality === modality ? one.tokenCount : 0), 0);
  const { promptTokensDetails: prompt, toolUsePromptTokensDetails: toolUse } = usage;
  const { cacheTokensDetails: cached, candidatesTokensDetails: output } = usage;
  return {
    audioInput: count('AUDIO', prompt, toolUse),
    imageInput: count('IMAGE', prompt, toolUse),
    cachedAudio: count('AUDIO', cached),
    cachedImage: count('IMAGE', cached),
    audioOutput: count('AUDIO', output),
    imageOutput: count('IMAGE', output),
  };
}
