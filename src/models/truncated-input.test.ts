import { expect, test } from 'vitest';
import { NO_USAGE, type Usage } from '../core/records/usage.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import { truncatedInput } from './truncated-input.ts';

const user = (text: string): TranscriptItem => ({ role: 'user', content: [{ type: 'text', text }] });
/** About 2,000 tokens of English, with 4 characters each. */
const TURN = user('the sun set '.repeat(667));
const read = (inputTokens: number, more: Partial<Usage> = {}): Usage => ({ ...NO_USAGE, inputTokens, ...more });

/** The window that a server shows which reports this, after so many turns. */
function shown(turns: number, usage: Usage, before?: Usage, turn = TURN): number | undefined {
  const transcript = Array.from({ length: turns }, () => turn);
  return truncatedInput({ system: '', transcript }, usage, before && { usage: before, added: [turn] });
}

test('the beginning that Ollama drops is noticed, with a window of 4,096 tokens and turns of 2,000', () => {
  expect(shown(1, read(2_056))).toBeUndefined();
  expect(shown(2, read(2_398), read(2_056))).toBe(2_398);
  expect(shown(3, read(2_395), read(2_398))).toBe(2_398);
});

test('an input far below the estimate is truncated without an earlier report', () => {
  expect(shown(3, read(2_395))).toBe(2_395);
  // One message that is too long: 10,857 tokens.
  expect(truncatedInput({ system: '', transcript: [user('a b '.repeat(10_857))] }, read(4_096), undefined)).toBe(4_096);
});

test.each<[string, Usage, Usage?]>([
  ['grows as it should', read(4_200), read(2_056)],
  ['grows with a tokenizer that has 5.5 characters per token', read(2_909), read(1_455)],
  ['was not reported', read(0), read(0)],
  ['is the same small number for every request', read(15), read(15)],
  ['lacks what was cached', read(1_100, { cacheReadTokens: 2_900 }), read(2_056)],
  ['lacks the thoughts and searches of the message before', read(4_000), read(9_000)],
])('an input that %s is whole', (_, usage, before) => {
  expect(shown(2, usage, before)).toBeUndefined();
});

test.each([
  ['spaces', `${' '.repeat(4_000)}x`],
  ['lines', `${'-'.repeat(4_000)}\n`],
])('runs of one character are few tokens: %s', (_, text) => {
  expect(shown(6, read(1_100), read(1_050), user(text))).toBeUndefined();
});

test('a level input with many spaces is compared with the estimate without them', () => {
  const padded = user(`${'the sun set '.repeat(667)}${' '.repeat(8_000)}`);
  expect(shown(2, read(4_000), read(9_000), padded)).toBeUndefined();
});

test('files are not part of the estimate', () => {
  const file = { type: 'file' as const, blob: 'f', mimeType: 'image/png', name: 'a.png', size: 1 };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a file of a message
  const seen = { role: 'user', content: Array.from({ length: 9 }, () => file) } as unknown as TranscriptItem;
  expect(truncatedInput({ system: '', transcript: [TURN, seen] }, read(2_100), undefined)).toBeUndefined();
});
