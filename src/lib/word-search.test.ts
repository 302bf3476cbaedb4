import { expect, test } from 'vitest';
import { WordSearch } from './word-search.ts';

test.each([
  [['he', 'she', 'his', 'hers'], 'ushers, his', 'u-, -'],
  [['abcd', 'bc'], 'abce bcd abcd', 'a-e -d -'],
  [['aba'], 'ababa aba', '- -'],
  [['ab', 'ba'], 'aba abab xx', '- - xx'],
  [['one'], 'oneone', '--'],
  [['one', ''], 'on', 'on'],
  [[], 'text', 'text'],
])('the words %j are replaced in %j', (words, text, replaced) => {
  expect(new WordSearch(words).replace(text, '-')).toBe(replaced);
});

test('a text that is made for the words does not take long', () => {
  const half = 'a'.repeat(15_000);
  const search = new WordSearch(['b', 'c'].map((middle) => half + middle + half));
  const text = 'a'.repeat(1_000_000);
  const start = performance.now();
  expect(search.replace(text, '') === text).toBe(true);
  expect(performance.now() - start).toBeLessThan(2_000);
});
