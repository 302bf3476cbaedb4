import { expect, test } from 'vitest';
import { FIRST_PIECE, parseCursor, sequenceNumber } from './cursor.ts';

test.each([
  { ordinal: 0, frame: 0 },
  { ordinal: 7, frame: FIRST_PIECE },
  { ordinal: 7, frame: 990_000 },
])('a number says which events its reader has: $ordinal, $frame', (cursor) => {
  expect(parseCursor(sequenceNumber(cursor))).toEqual(cursor);
});

test.each([-1, 0.5, NaN, 2 ** 53, sequenceNumber({ ordinal: 7, frame: 990_001 }), 7_999_999])(
  'no stream has sent %s',
  (sequence) => {
    expect(parseCursor(sequence)).toBeUndefined();
  },
);
