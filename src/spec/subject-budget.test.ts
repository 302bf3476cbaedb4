import { expect, test } from 'vitest';
import { subjectBudget } from './subject-budget.ts';

test('a budget of subjects is a period and its limits', () => {
  expect(subjectBudget.parse('day:usd=0.5, tokens=2000000')).toEqual({
    period: 'day',
    limit: { usd: 0.5, tokens: 2_000_000 },
  });
  expect(subjectBudget.parse('month:steps=10')).toEqual({ period: 'month', limit: { steps: 10 } });
});

test.each(['', 'day', 'day:', 'week:usd=1', 'day:usd=0', 'day:usd=-1', 'day:usd=1,usd=2', 'day:seconds=1', 'usd=1'])(
  'the setting %j is rejected',
  (text) => expect(subjectBudget.safeParse(text).error?.issues[0]?.message).toMatch(/^must be day: or month:/),
);
