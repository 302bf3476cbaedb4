import type { Usage } from '../core/records.ts';
import type { Price } from './provider-file.ts';

/** What a model call costs, in USD. The counts of cached and reasoning tokens are parts of those of input and output. */
export function costOf(usage: Usage, price: Price): number {
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens } = usage;
  const perMillion =
    Math.max(0, inputTokens - cacheReadTokens - cacheWriteTokens) * price.input +
    cacheReadTokens * price.cachedInput +
    cacheWriteTokens * price.cacheWrite +
    Math.max(0, outputTokens - reasoningTokens) * price.output +
    reasoningTokens * price.reasoning;
  return perMillion / 1_000_000;
}
