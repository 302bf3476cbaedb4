import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { addSeconds, cutPoint, fairShare, isoTime, jsonBytes, truncateMiddle } from './text.ts';

const text = fc.string({ maxLength: 500, unit: fc.constantFrom('a', '"', '\n', '\u0007', 'é', '漢', '😀', '\ud800') });

test('sizes are those of the JSON encoding', () => {
  fc.assert(
    fc.property(text, (value) => {
      expect(jsonBytes(value)).toBe(Buffer.byteLength(JSON.stringify(value)) - 2);
    }),
  );
});

test('a piece has all characters that fit, at least one, and never half of one', () => {
  fc.assert(
    fc.property(text, fc.nat(20), fc.integer({ min: 1, max: 300 }), (value, before, maxBytes) => {
      const from = Array.from(value).slice(0, before).join('').length;
      const to = cutPoint(value, from, maxBytes);
      const [first = '', ...more] = Array.from(value.slice(from, to));
      const [next] = Array.from(value.slice(to));
      if (more.length > 0) expect(jsonBytes(first + more.join(''))).toBeLessThanOrEqual(maxBytes);
      if (from < value.length) expect(first).not.toBe('');
      if (next !== undefined) expect(jsonBytes(value.slice(from, to) + next)).toBeGreaterThan(maxBytes);
      expect(Array.from(value)).toEqual([...Array.from(value.slice(0, to)), ...Array.from(value.slice(to))]);
    }),
  );
});

test('the bytes of a character are those of its JSON, where their number changes', () => {
  const points = [
    0x00, 0x08, 0x0b, 0x1f, 0x20, 0x22, 0x5c, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xd800, 0xdfff, 0xe000, 0xffff,
  ];
  for (const point of [...points, 0x10000, 0x10ffff]) {
    const character = String.fromCodePoint(point);
    const bytes = jsonBytes(character);
    // As many as fit, and not one more.
    const ends = [3 * bytes, 4 * bytes - 1, 4 * bytes].map((maxBytes) => cutPoint(character.repeat(9), 0, maxBytes));
    expect(ends, point.toString(16)).toEqual([3, 3, 4].map((count) => count * character.length));
  }
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
      // Three quarters at the beginning, one at the end, but for a character of each and the digits of the note.
      const budget = maxBytes - jsonBytes(`[${value.length} left out]`) - 4;
      expect(jsonBytes(head)).toBeGreaterThan((budget * 3) / 4 - 7);
      expect(jsonBytes(tail)).toBeGreaterThan(budget / 4 - 7);
    }),
  );
});

test('a budget is shared fairly: small texts stay whole, large ones are cut to the same size', () => {
  expect(fairShare(['x'.repeat(10), 'x'.repeat(1000), 'x'.repeat(1000)], 210)).toBe(100);
  expect(fairShare(['x'.repeat(10), 'x'.repeat(20)], 100)).toBe(100);
  expect(fairShare([], 100)).toBe(100);
});

test('times of records are in UTC, with milliseconds', () => {
  expect(isoTime(1_787_212_800_123)).toBe('2026-08-20T08:00:00.123Z');
  expect(addSeconds('2026-08-20T08:00:00.123Z', 90.5)).toBe('2026-08-20T08:01:30.623Z');
});
