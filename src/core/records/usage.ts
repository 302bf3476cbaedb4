const MEDIA_TOKENS = ['audioInput', 'imageInput', 'cachedAudio', 'cachedImage', 'audioOutput', 'imageOutput'] as const;

/** Tokens of audio and of images: parts of the tokens of input, of those read from the cache, and of output. */
export type MediaTokens = { [Kind in (typeof MEDIA_TOKENS)[number]]?: number };

/** Token counts as the provider reported them. */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheWriteTokens: number;
  reasoningTokens: number;
  /** The tokens that are not text, if the provider reports them separately. */
  media?: MediaTokens;
  /** What the tokens cost; absent if a model's price is unknown. */
  costInUsd?: number;
  /** Attempts that ended before the provider reported their usage; the token counts do not include them. */
  unreportedAttempts?: number;
}

export const NO_USAGE: Usage = {
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
};

/** The usage of an attempt that reported none. */
export const UNREPORTED: Usage = { ...NO_USAGE, unreportedAttempts: 1 };

export function addUsage(a: Usage, b: Usage | undefined): Usage {
  if (!b) return a;
  const unreportedAttempts = (a.unreportedAttempts ?? 0) + (b.unreportedAttempts ?? 0);
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    cacheReadTokens: a.cacheReadTokens + b.cacheReadTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
    ...mediaUsage(a.media, b.media),
    ...addCost(a, b),
    ...(unreportedAttempts > 0 && { unreportedAttempts }),
  };
}

/** The sum of media tokens; without any, there is no field for them. */
export function mediaUsage(...all: (MediaTokens | undefined)[]): Pick<Usage, 'media'> {
  const sums = MEDIA_TOKENS.map((kind) => [kind, all.reduce((sum, one) => sum + (one?.[kind] ?? 0), 0)] as const);
  const some = sums.filter(([, sum]) => sum > 0);
  return some.length > 0 ? { media: Object.fromEntries(some) } : {};
}

/** A sum with an unknown part is unknown. A usage without tokens costs nothing, and has no cost of its own. */
function addCost(a: Usage, b: Usage): Pick<Usage, 'costInUsd'> {
  const costs = [a, b].filter((usage) => usage.inputTokens + usage.outputTokens > 0).map(({ costInUsd }) => costInUsd);
  const known = costs.filter((cost) => cost !== undefined);
  if (known.length === 0 || known.length < costs.length) return {};
  return { costInUsd: known.reduce((sum, cost) => sum + cost, 0) };
}
