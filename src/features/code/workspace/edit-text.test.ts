import { fc } from '../../../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { editText } from './edit-text.ts';

const BOM = '\uFEFF';

test.each([
  { name: 'a word', text: 'a b c\n', old: 'b', new: 'x', edited: 'a x c\n' },
  { name: 'all of a text', text: 'a', old: 'a', new: '', edited: '' },
  { name: 'several lines', text: 'a\nb\nc\nd\n', old: 'b\nc\n', new: 'x\n', edited: 'a\nx\nd\n' },
  { name: 'the end of a text', text: 'a\nb', old: '\nb', new: '', edited: 'a' },
  { name: 'characters that are special in patterns', text: 'f($1) .*', old: '($1) .*', new: '$&$1', edited: 'f$&$1' },
  { name: 'lines with CRLF', text: 'a\r\nb\r\nc\r\n', old: 'a\nb', new: 'x\ny\nz', edited: 'x\r\ny\r\nz\r\nc\r\n' },
  { name: 'a line end of CRLF', text: 'a\r\nb\r\n', old: 'a\n', new: 'x\n', edited: 'x\r\nb\r\n' },
  { name: 'CRLF in the arguments', text: 'a\nb\n', old: 'a\r\nb', new: 'x\r\ny', edited: 'x\ny\n' },
  { name: 'line ends that are not replaced', text: 'a\r\nb\nc\n', old: 'c', new: 'x\ny', edited: 'a\r\nb\nx\ny\n' },
  { name: 'the first line after a byte order mark', text: `${BOM}a\n`, old: 'a\n', new: 'x\n', edited: `${BOM}x\n` },
])('$name is replaced', ({ text, old, new: new_text, edited }) => {
  expect(editText(text, { old_text: old, new_text })).toEqual({ text: edited, isExact: true });
});

test.each([
  { name: 'trailing blanks in the file', text: 'a  \n\tb\t\nc\n', old: 'a\n\tb\nc', new: 'x', edited: 'x\n' },
  { name: 'trailing blanks in old_text', text: 'a\nb\n', old: 'a \nb ', new: 'x', edited: 'x\n' },
  { name: 'blanks at the end stay', text: 'a  \nb  \nc', old: 'a\nb', new: 'x\ny', edited: 'x\ny  \nc' },
  { name: 'trailing blanks before CRLF', text: 'a \r\nb\r\n', old: 'a\nb', new: 'x\ny', edited: 'x\r\ny\r\n' },
  { name: 'single quotes', text: 'say ‘it’s’', old: "'it's'", new: 'x', edited: 'say x' },
  { name: 'double quotes, in old_text', text: 'say "it"', old: '“it”', new: 'x', edited: 'say x' },
  { name: 'dashes', text: '1–2 — 3', old: '1-2 - 3', new: 'x', edited: 'x' },
])('if old_text does not occur, these are ignored: $name', ({ text, old, new: new_text, edited }) => {
  expect(editText(text, { old_text: old, new_text })).toEqual({ text: edited, isExact: false });
});

test('an exact place is preferred to others', () => {
  const edit = { old_text: '"a"', new_text: 'x' };
  expect(editText('“a” "a"', edit)).toEqual({ text: '“a” x', isExact: true });
});

test.each([
  { text: 'a\nb\nc\nb\nb\n', old: 'b', problem: /occurs more than once, first in lines 2 and 4/ },
  { text: 'aaa', old: 'aa', problem: /more than once, first in lines 1 and 1/ },
  { text: '“a”\n‘b’\n”a“', old: '"a"', problem: /more than once, first in lines 1 and 3/ },
  { text: 'a\nb\n', old: 'c', problem: /does not occur/ },
  { text: 'a\nb\n', old: 'A', problem: /does not occur/ },
  { text: '', old: ' ', problem: /does not occur/ },
])('$old in $text is an error', ({ text, old, problem }) => {
  expect(() => editText(text, { old_text: old, new_text: 'x' })).toThrow(problem);
});

test('the place is the one that a plain search finds', () => {
  const letters = fc.string({ unit: fc.constantFrom('a', 'b', '\n'), minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom('a', 'b', '\n'), maxLength: 40 }), letters, (text, old_text) => {
      const first = text.indexOf(old_text);
      fc.pre(first >= 0 && !text.includes(old_text, first + 1));
      const expected = `${text.slice(0, first)}x${text.slice(first + old_text.length)}`;
      expect(editText(text, { old_text, new_text: 'x' }).text).toBe(expected);
    }),
  );
});

test('a search takes a time that is linear in the texts', () => {
  // The search of V8 takes longer than the time-out of this test.
  const old_text = `${'a'.repeat(30_000)}b${'a'.repeat(30_000)}`;
  expect(() => editText('a'.repeat(4 * 1024 * 1024), { old_text, new_text: '' })).toThrow(/does not occur/);
});
