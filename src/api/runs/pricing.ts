import type { Usage } from '../../core/records/usage.ts';
import type { Pricing } from '../../spec/agent-spec.ts';

export interface KindOfTokens {
  kind: 'text' | 'audio' | 'image';
  input: number;
  /** The part of the input that was read from the cache. */
  cached: number;
  output: number;
}

/** The tokens of a model call by their kinds. Tokens that are neither audio nor images are text. */
export function kindsOf({ inputTokens, outputTokens, cacheReadTokens, media = {} }: Usage): KindOfTokens[] {
  const { audioInput = 0, imageInput = 0, cachedAudio = 0, cachedImage = 0, audioOutput = 0, imageOutput = 0 } = media;
  return [
    {
      kind: 'text',
      input: Math.max(0, inputTokens - audioInput - imageInput),
      cached: Math.max(0, cacheReadTokens - cachedAudio - cachedImage),
      output: Math.max(0, outputTokens - audioOutput - imageOutput),
    },
    { kind: 'audio', input: audioInput, cached: cachedAudio, output: audioOutput },
    { kind: 'image', input: imageInput, cached: cachedImage, output: imageOutput },
  ];
}

/** The cost of a model call in USD by the prices of a run's request. As in llm-sdk, tokens without a price are free. */
export function costBy(pricing: Pricing, usage: Usage): number {
  return kindsOf(usage).reduce((sum, { kind, input, cached, output }) => {
    const price = pricing[`input_cost_per_${kind}_token`] ?? 0;
    const cachedPrice = pricing[`input_cost_per_cached_${kind}_token`] ?? price;
    const read = Math.min(input, cached);
    return sum + (input - read) * price + read * cachedPrice + output * (pricing[`output_cost_per_${kind}_token`] ?? 0);
  }, 0);
}
