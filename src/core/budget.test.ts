import { expect, test } from 'vitest';
import { exceeded, isUsedUp, leftOf, raised, reachedKinds, spentBy } from './budget.ts';
import { NO_USAGE } from './records/usage.ts';
import { NO_TOTALS, type TurnTotals } from './turn-totals.ts';

const used = (tokens: number, more: object = {}): TurnTotals => ({
  ...NO_TOTALS,
  usage: { ...NO_USAGE, inputTokens: tokens - 1, outputTokens: 1, ...more },
  modelCalls: 2,
});

test('spending is counted in tokens of input and output, cost, model calls and time', () => {
  expect(spentBy(used(10, { costInUsd: 0.5 }), 1500)).toEqual({ tokens: 10, usd: 0.5, steps: 2, seconds: 1.5 });
  expect(spentBy(NO_TOTALS, 0)).toEqual({ tokens: 0, usd: 0, steps: 0, seconds: 0 });
});

test('a limit is reached by its own amount, and by an amount that is unknown', () => {
  const spent = spentBy(used(10), 0);
  expect(reachedKinds({ tokens: 11, steps: 3, seconds: 1 }, spent)).toEqual([]);
  expect(reachedKinds({ tokens: 10, steps: 2 }, spent)).toEqual(['tokens', 'steps']);
  expect(reachedKinds({ usd: 1000 }, spent)).toEqual(['usd']);
  expect(exceeded({ scope: 'turn', limit: { tokens: 9, usd: 1, steps: 3 }, spent })).toBe(
    'The turn has used 10 of 9 tokens, an unknown amount of 1 USD of its budget.',
  );
});

test('a raise never lowers a limit, nor adds one', () => {
  expect(raised({ tokens: 10, steps: 5 }, { tokens: 20, steps: 1, usd: 3 })).toEqual({ tokens: 20, steps: 5 });
});

test('the rest of a budget shows whether the next call is within it', () => {
  const left = leftOf({ tokens: 30, steps: 9, seconds: 10 }, spentBy(used(10), 4000), 100_000);
  expect(left).toEqual({ tokens: 20, steps: 7, untilMs: 106_000 });
  expect([isUsedUp(left, used(19), 0), isUsedUp(left, used(20), 0), isUsedUp(left, used(1), 106_000)]).toEqual([
    false,
    true,
    true,
  ]);
  // `NaN` would be null in a log, which is before any time.
  expect(leftOf({ tokens: 30 }, spentBy(used(10), 4000), 100_000)).toEqual({ tokens: 20 });
});
