import type { Usage } from '../../core/records.ts';
import type { Pricing } from '../../spec/agent-spec.ts';

/**
 * What a model call costs in USD by the prices of a run's request. Tokens that are neither audio nor images are text; the
 * cached ones are part of the text of the input. As in llm-sdk, what has no price costs nothing.
 */
export function costBy(pricing: Pricing, usage: Usage): number {
  const { audioInputTokens = 0, imageInputTokens = 0, audioOutputTokens = 0, imageOutputTokens = 0 } = usage;
  const { input_cost_per_text_token: textInput = 0, input_cost_per_cached_text_token: cachedInput = textInput } =
    pricing;
  const text = Math.max(0, usage.inputTokens - audioInputTokens - imageInputTokens);
  const cached = Math.min(text, usage.cacheReadTokens);
  return (
    (text - cached) * textInput +
    cached * cachedInput +
    audioInputTokens * (pricing.input_cost_per_audio_token ?? 0) +
    imageInputTokens * (pricing.input_cost_per_image_token ?? 0) +
    Math.max(0, usage.outputTokens - audioOutputTokens - imageOutputTokens) *
      (pricing.output_cost_per_text_token ?? 0) +
    audioOutputTokens * (pricing.output_cost_per_audio_token ?? 0) +
    imageOutputTokens * (pricing.output_cost_per_image_token ?? 0)
  );
}
