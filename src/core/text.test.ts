import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { truncateMiddle, fairShare, jsonBytes } from './text.ts';

const text = fc.string({ maxLength: 500, unit: fc.constantFrom('a', '"', '\n', '\u0007', 'é', '漢', '😀', '\ud800') });

test('sizes are those of the JSON encoding', () => {
  fc.assert(
    fc.property(text, (value) => {
      expect(jsonBytes(value)).toBe(Buffer.byteLength(JSON.stringify(value)) - 2);
    }),
  );
});

test('a truncated text fits, keeps its head and tail and says how much was omitted', () => {
  fc.assert(
    fc.property(text, fc.integer({ min: 100, max: 1000 }), (value, maxBytes) => {
      const clipped = truncateMiddle(value, maxBytes, (n) => `[${n} left out]`);
      expect(jsonBytes(clipped)).toBeLessThanOrEqual(maxBytes);
      if (jsonBytes(value) <= maxBytes) {
        expect(clipped).toBe(value);
        return;
      }
      const [, head, omitted, tail] = /^([^]*)\n\[(\d+) left out\]\n([^]*)$/.exec(clipped) ?? [];
      if (head === undefined || tail === undefined) throw new Error('no note');
      expect(value.startsWith(head) && value.endsWith(tail)).toBe(true);
      expect(head.length + Number(omitted) + tail.length).toBe(value.length);
    }),
  );
});

test('a budget is shared fairly: small texts stay whole, large ones are cut to the same size', () => {
  expect(fairShare(['x'.repeat(10), 'x'.repeat(1000), 'x'.repeat(1000)], 210)).toBe(100);
  expect(fairShare(['x'.repeat(10), 'x'.repeat(20)], 100)).toBe(100);
  expect(fairShare([], 100)).toBe(100);
});
