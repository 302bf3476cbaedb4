import { expect, test } from 'vitest';
import { CronError, cronExpressions } from './cron.ts';

test.each([
  ['0 9 * * 1-5', ['0 9 * * 1,2,3,4,5']],
  ['*/15 * * * *', ['0,15,30,45 * * * *']],
  ['5/20 0 1 JAN,jul *', ['5,25,45 0 1 1,7 *']],
  ['0 0 * * SUN', ['0 0 * * 0']],
  ['0 0 * * 5-7', ['0 0 * * 0,5,6']],
  ['0 0 * * 0-7', ['0 0 * * *']],
  ['  0\t0 1-31/10 * *  ', ['0 0 1,11,21,31 * *']],
  ['0 0 29 2 *', ['0 0 29 2 *']],
])('%s is normalized', (expression, normalized) => {
  expect(cronExpressions(expression)).toEqual(normalized);
});

test('one of two given days suffices', () => {
  expect(cronExpressions('0 9 13 * 5')).toEqual(['0 9 13 * *', '0 9 * * 5']);
  expect(cronExpressions('0 9 31 2 5')).toEqual(['0 9 * 2 5']);
  expect(cronExpressions('0 9 */2 * 1')).toEqual(['0 9 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * 1']);
});

test.each([
  ['', 'five fields'],
  ['@daily', 'five fields'],
  ['0 0 0 * * *', 'five fields'],
  ['60 * * * *', 'minute: "60"'],
  ['* 24 * * *', 'hour: "24"'],
  ['* * 0 * *', 'day of month: "0"'],
  ['* * * 13 *', 'month: "13"'],
  ['* * * * 8', 'day of week: "8"'],
  ['* * * * mon-fri-sat', 'day of week: "mon-fri-sat"'],
  ['*/0 * * * *', 'minute: "*/0"'],
  ['5-1 * * * *', 'ends before it begins'],
  ['1,,2 * * * *', 'minute: ""'],
  ['* * L * *', 'day of month: "L"'],
  ['-1 * * * *', 'minute: "-1"'],
  ['0 0 31 4,6 *', 'no day that exists'],
])('%j is rejected', (expression, problem) => {
  expect(() => cronExpressions(expression)).toThrow(CronError);
  expect(() => cronExpressions(expression)).toThrow(problem);
});
