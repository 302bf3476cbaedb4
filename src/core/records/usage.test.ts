import { expect, test } from 'vitest';
import { addUsage, mediaUsage, NO_USAGE, UNREPORTED, type Usage } from './usage.ts';

const FIRST: Usage = { inputTokens: 1, outputTokens: 2, cacheReadTokens: 3, cacheWriteTokens: 4, reasoningTokens: 5 };
const SECOND: Usage = {
  inputTokens: 10,
  outputTokens: 20,
  cacheReadTokens: 30,
  cacheWriteTokens: 40,
  reasoningTokens: 50,
};
const SUM: Usage = {
  inputTokens: 11,
  outputTokens: 22,
  cacheReadTokens: 33,
  cacheWriteTokens: 44,
  reasoningTokens: 55,
};

test('each count is added, and attempts without a report are counted', () => {
  expect(addUsage(FIRST, SECOND)).toStrictEqual(SUM);
  expect(addUsage(FIRST, undefined)).toBe(FIRST);
  expect(addUsage(addUsage(FIRST, UNREPORTED), UNREPORTED)).toStrictEqual({ ...FIRST, unreportedAttempts: 2 });
  expect(addUsage(UNREPORTED, SECOND)).toStrictEqual({ ...SECOND, unreportedAttempts: 1 });
});

test('media are added by their kind, if there are any', () => {
  const sound = { media: { audioInput: 3, imageOutput: 1 } };
  expect(addUsage({ ...FIRST, ...sound }, { ...SECOND, media: { audioInput: 4 } })).toStrictEqual({
    ...SUM,
    media: { audioInput: 7, imageOutput: 1 },
  });
  expect(addUsage(FIRST, { ...SECOND, ...sound })).toStrictEqual({ ...SUM, ...sound });
  expect(mediaUsage(undefined, { audioInput: 0 })).toStrictEqual({});
});

test('a cost is unknown if a part of it is; a usage without tokens costs nothing', () => {
  const cost = (...usages: Usage[]) => usages.reduce(addUsage).costInUsd;
  const priced = { ...FIRST, costInUsd: 0.5 };
  expect(cost(priced, { ...SECOND, costInUsd: 0.25 })).toBe(0.75);
  expect([cost(priced, SECOND), cost(SECOND, priced), cost(FIRST, SECOND)]).toEqual([undefined, undefined, undefined]);
  expect([cost(priced, UNREPORTED), cost(NO_USAGE, priced), cost(NO_USAGE, UNREPORTED)]).toEqual([0.5, 0.5, undefined]);
  for (const one of ['inputTokens', 'outputTokens'] as const)
    expect(cost(priced, { ...NO_USAGE, [one]: 1 })).toBe(undefined);
});
