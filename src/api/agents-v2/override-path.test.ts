import { fc } from '../../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { parsePath, type Step } from './override-path.ts';

const field = fc.string({ minLength: 1, unit: 'grapheme' }).filter((text) => !/[.[\]=]/.test(text));
const selector = fc.record({ field, value: fc.string({ unit: 'grapheme' }), isQuoted: fc.boolean() });
const parts = fc.array(fc.record({ field, selectors: fc.array(selector, { maxLength: 3 }) }), { minLength: 1 });

test('a written path has the steps with which it was written', () => {
  fc.assert(
    fc.property(parts, (written) => {
      const steps = written.flatMap(({ field, selectors }): Step[] => [
        { field },
        ...selectors.map(({ field, value }) => ({ select: { field, value } })),
      ]);
      const texts = written.map(({ field, selectors }) => {
        const written = selectors.map(({ field, value, isQuoted }) => {
          const mustBeQuoted = isQuoted || value.startsWith('"') || value.includes(']');
          return `[${field}=${mustBeQuoted ? JSON.stringify(value) : value}]`;
        });
        return field + written.join('');
      });
      expect(parsePath(texts.join('.'))).toEqual(steps);
    }),
  );
});

test('any other text is no path, and is rejected in linear time', () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom('a', '.', '[', ']', '=', '"', '\\') }), (text) => {
      const steps = parsePath(text);
      expect(steps === undefined || steps.length > 0).toBe(true);
    }),
  );
  for (const text of [
    '',
    '.',
    '.a',
    'a.',
    'a..b',
    'a[b]',
    'a[b=c',
    'a[=c]',
    'a[b=c]d',
    '[a=b]',
    'a]',
    'a=b',
    'a["x"]',
    'a[b="c]',
    'a[b="\\x"]',
  ]) {
    expect(parsePath(text), text).toBeUndefined();
  }
  const long = `a${'[b=c]'.repeat(10_000)}`;
  expect(parsePath(`${long}!`)).toBeUndefined();
  expect(parsePath(`a[b="${'\\\\'.repeat(10_000)}`)).toBeUndefined();
});
