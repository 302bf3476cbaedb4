import { expect, test } from 'vitest';
import { LineReader } from './line-reader.ts';

function linesOf(chunks: (string | Buffer)[], maxBytes = 100): [string, boolean][] {
  const lines: [string, boolean][] = [];
  const reader = new LineReader(maxBytes, (line, isWhole) => void lines.push([line, isWhole]));
  for (const chunk of chunks) reader.push(Buffer.from(chunk));
  reader.end();
  return lines;
}

test('lines are the same however their chunks are cut', () => {
  const bytes = Buffer.from('one\r\n\nzwölf\nthree');
  const whole = [
    ['one', true],
    ['zwölf', true],
    ['three', true],
  ];
  expect(linesOf([bytes])).toEqual(whole);
  expect(linesOf([...bytes].map((byte) => Buffer.from([byte])))).toEqual(whole);
  for (let at = 0; at <= bytes.length; at++) {
    expect(linesOf([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(whole);
  }
});

test('a line that is too long is truncated, and the next one is whole again', () => {
  expect(linesOf(['12345', '678', '90\nshort\n12345\n123456'], 5)).toEqual([
    ['12345', false],
    ['short', true],
    ['12345', true],
    ['12345', false],
  ]);
});
