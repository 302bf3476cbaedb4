import { expect, test } from 'vitest';
import type { TranscriptItem } from '../core/transcript.ts';
import { acceptedConversation, acceptedId, acceptedName } from './accepted.ts';

const user = (...texts: string[]): TranscriptItem => ({
  role: 'user',
  content: texts.map((text) => ({ type: 'text', text })),
});
const CONTINUE = user('Continue.');

test('names and ids that all accept stay as they are', () => {
  expect([acceptedName('look_at-1'), acceptedId('toolu_01-a')]).toEqual(['look_at-1', 'toolu_01-a']);
  expect(acceptedName(`a.b c${'x'.repeat(100)}`)).toMatch(/^a_b_cx{59}$/);
  expect(acceptedId('a:1')).toMatch(/^call_[0-9a-f]{32}$/);
  expect(acceptedId('a:1')).toBe(acceptedId('a:1'));
  expect(acceptedId('a:1')).not.toBe(acceptedId('a.1'));
});

test('a conversation has no blank texts of users, and ends with the user or a result', () => {
  const asked = user('hi');
  expect(acceptedConversation([asked])).toEqual([asked]);
  expect(acceptedConversation([asked])[0]).toBe(asked);
  expect(acceptedConversation([user(' \n', 'hi', '')])).toEqual([asked]);
  expect(acceptedConversation([user(''), asked])).toEqual([asked]);
  expect(acceptedConversation([user('')])).toEqual([CONTINUE]);
  expect(acceptedConversation([])).toEqual([CONTINUE]);
  const image = { type: 'file' as const, name: 'a.png', mimeType: 'image/png', bytes: 1, base64: 'AA==' };
  const shown: TranscriptItem = { role: 'user', content: [image] };
  expect(acceptedConversation([{ role: 'user', content: [{ type: 'text', text: '' }, image] }])).toEqual([shown]);
});
