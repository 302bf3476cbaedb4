import { expect, test } from 'vitest';
import { refuseInput, titleOf } from './input-rules.ts';

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

test('a call that waits for a sign-in allows any input, but no answer', () => {
  const source = { turnId: 'turn_0', messageId: 'msg_0', stamp: 's', index: 0 };
  const pending = [{ threadId: 'main', toolCallId: 'a', needs: 'sign_in' as const, source }];
  expect(refuseInput([], pending)).toBeUndefined();
  expect(refuseInput([message('hello')], pending)).toBeUndefined();
  const answer = { type: 'user.tool_response' as const, threadId: 'main', toolCallId: 'a', content: 'done' };
  expect(refuseInput([answer], pending)?.code).toBe('call_not_pending');
});
