import { expect, test } from 'vitest';
import { NO_USAGE, type Usage } from '../../core/records/usage.ts';
import type { Pricing } from '../../spec/agent-spec.ts';
import { usageToWire } from './output-parts.ts';
import { costBy } from './pricing.ts';

const PRICES: Pricing = {
  input_cost_per_text_token: 3,
  input_cost_per_cached_text_token: 1,
  output_cost_per_text_token: 5,
  input_cost_per_audio_token: 100,
  output_cost_per_audio_token: 200,
  input_cost_per_image_token: 10_000,
  output_cost_per_image_token: 20_000,
};

test.each<[string, Partial<Usage>, Pricing, number]>([
  ['text', { inputTokens: 10, outputTokens: 4 }, PRICES, 50],
  ['cached text', { inputTokens: 10, cacheReadTokens: 6, outputTokens: 4 }, PRICES, 38],
  [
    'cached text without a price of its own',
    { inputTokens: 10, cacheReadTokens: 6 },
    { input_cost_per_text_token: 3 },
    30,
  ],
  [
    'cached text that costs nothing',
    { inputTokens: 10, cacheReadTokens: 6 },
    { ...PRICES, input_cost_per_cached_text_token: 0 },
    12,
  ],
  ['what has no price', { inputTokens: 10, outputTokens: 4 }, { output_cost_per_text_token: 5 }, 20],
  ['audio', { inputTokens: 10, outputTokens: 4, media: { audioInput: 2, audioOutput: 3 } }, PRICES, 24 + 200 + 5 + 600],
  [
    'images',
    { inputTokens: 10, outputTokens: 4, media: { imageInput: 2, imageOutput: 3 } },
    PRICES,
    24 + 20_000 + 5 + 60_000,
  ],
  [
    'cached audio and images',
    { inputTokens: 30, cacheReadTokens: 7, media: { audioInput: 10, imageInput: 10, cachedAudio: 2, cachedImage: 4 } },
    { ...PRICES, input_cost_per_cached_audio_token: 50 },
    27 + 1 + 800 + 100 + 100_000,
  ],
  [
    'counts that contradict each other',
    { inputTokens: 10, cacheReadTokens: 99, media: { audioInput: 12 } },
    PRICES,
    1_200,
  ],
])('%s', (_, usage, pricing, cost) => {
  expect(costBy(pricing, { ...NO_USAGE, ...usage })).toBe(cost);
});

test('usage has the kinds of tokens, unless all are text', () => {
  expect(
    usageToWire({
      ...NO_USAGE,
      inputTokens: 10,
      cacheReadTokens: 4,
      outputTokens: 3,
      media: { audioInput: 2, cachedAudio: 1, imageOutput: 3 },
    }),
  ).toEqual({
    input_tokens: 10,
    output_tokens: 3,
    input_tokens_details: { text_tokens: 8, cached_text_tokens: 3, audio_tokens: 2, cached_audio_tokens: 1 },
    output_tokens_details: { text_tokens: 0, image_tokens: 3 },
  });
  expect(usageToWire({ ...NO_USAGE, inputTokens: 1 })).toEqual({ input_tokens: 1, output_tokens: 0 });
  expect(usageToWire({ ...NO_USAGE, unreportedAttempts: 1 })).toBeUndefined();
});
