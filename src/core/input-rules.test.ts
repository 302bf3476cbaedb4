import { expect, test } from 'vitest';
import { titleOf } from './input-rules.ts';

const message = (content: string) => ({ type: 'user.message' as const, content });

test.each([
  [[], null],
  [[message('  short  ')], 'short'],
  [[message(' '), message('second')], 'second'],
  [[message('😀'.repeat(60))], '😀'.repeat(50)],
  [[message('a\0b')], 'ab'],
  [
    [
      {
        type: 'user.message' as const,
        content: [
          { type: 'text' as const, text: '\n' },
          { type: 'text' as const, text: 'part' },
        ],
      },
    ],
    'part',
  ],
])('%j is titled %j', (input, title) => {
  expect(titleOf(input)).toBe(title);
});
