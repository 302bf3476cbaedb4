import { expect, test } from 'vitest';
import { z } from 'zod';
import { namingUnknownKeys } from './unknown-keys.ts';

const schema = z.strictObject({
  tool: z.string().optional(),
  approvers: z.string().optional(),
  tool_results: z.array(z.strictObject({ content: z.string().optional() })).optional(),
  nothing: z.strictObject({}).optional(),
  prices: z.partialRecord(z.enum(['input_cost', 'output_cost']), z.number()).optional(),
});
const known = 'the known ones are tool, approvers, tool_results, nothing, prices';

const problemsOf = (value: unknown): string[] =>
  schema.safeParse(value, { error: namingUnknownKeys }).error?.issues.map(({ message }) => message) ?? [];

test.each([
  [{ tols: 'x' }, 'unknown key "tols": do you mean "tool"?'],
  [{ aprovers: 'x' }, 'unknown key "aprovers": do you mean "approvers"?'],
  [{ tool_resluts: [] }, 'unknown key "tool_resluts": do you mean "tool_results"?'],
  [{ Tool: 'x' }, 'unknown key "Tool": do you mean "tool"?'],
  [{ tool_results: [{ contents: '' }] }, 'unknown key "contents": do you mean "content"?'],
  [{ colour: 'red' }, `unknown key "colour": ${known}`],
  [{ nothing: { colour: 'red' } }, 'unknown key "colour": no keys are known here'],
  [{ prices: { input_costs: 1 } }, 'unknown key "input_costs": do you mean "input_cost"?'],
  [{ tols: 'x', colour: 1 }, `unknown key "tols": do you mean "tool"?; unknown key "colour": ${known}`],
])('the problem of %j is %s', (value, problem) => {
  expect(problemsOf(value)).toEqual([problem]);
});

test('many and long unknown keys make a short message', () => {
  const keys = Array.from({ length: 1_000 }, (_, i) => `${i}`.padEnd(10_000, 'x'));
  const [message = ''] = problemsOf(Object.fromEntries(keys.map((key) => [key, 1])));
  expect(message).toMatch(/; and 995 more unknown keys$/);
  expect(message.length).toBeLessThan(1_000);
});

test('other problems keep their messages', () => {
  expect(problemsOf({ tool: 1 })).toEqual(['Invalid input: expected string, received number']);
  expect(problemsOf([])).toEqual(['Invalid input: expected object, received array']);
});
