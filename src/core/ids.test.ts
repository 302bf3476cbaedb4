import { expect, test } from 'vitest';
import { eventId, isId, numberOf, resultId, timeOf, ulid, ulidOf } from './ids.ts';
import { spanIdOf } from './trace-context.ts';

const TURN = 'turn_01m80gr3nvzcagq9avex1a3eyz';

test('ids that are derived from the id of a turn never change, since they are not stored', () => {
  expect(eventId(TURN, 1)).toBe('evt_01m80gr3nvzcagq9avex1a3ez0');
  expect(eventId(TURN, 1_234_567)).toBe('evt_01m80gr3nvzcagq9avex1b94k6');
  expect(eventId(`turn_${'0'.repeat(10)}${'z'.repeat(16)}`, 2)).toBe(`evt_${'0'.repeat(25)}1`);
  expect(resultId(TURN, { messageId: 'msg_01m80gr3p0000000000000001z', index: 1 })).toBe(
    'evt_01m80gr3nvzcagq9avex1a3f0z',
  );
  expect(spanIdOf(TURN)).toBe('0ba55b7742a1bbdf');
});

test('an id that is not a ULID is rejected', () => {
  expect(() => eventId('turn_01m80gr3nvzcagq9avex1a3eyU', 1)).toThrow(RangeError);
  expect(() => spanIdOf('turn_01m80gr3nvzcagq9avex1a3ey-')).toThrow(RangeError);
  expect(() => spanIdOf(ulid('turn', 0, () => 31))).not.toThrow();
});

test('an id consists of the time and sixteen random digits', () => {
  const digits = Array.from({ length: 16 }, (_, i) => 2 * i);
  const id = ulid('turn', 1_787_212_800_123, () => digits.shift() ?? 0);
  expect(id.slice(-16)).toBe('02468acegjmprtwy');
  expect(id).toHaveLength('turn_'.length + 26);
  expect(timeOf(id)).toBe(1_787_212_800_123);
});

test('a number of 128 bits and its letters are each other', () => {
  for (const letters of ['7'.padEnd(26, 'z'), '01m80gr3nvzcagq9avex1a3eyz', '0'.repeat(26)])
    expect(ulidOf(numberOf(letters))).toBe(letters);
});

test('only letters, digits, underscores and hyphens are looked up, 128 at most', () => {
  expect([TURN, 'A-9', 'x'.repeat(128)].map(isId)).toEqual([true, true, true]);
  expect(['', 'x'.repeat(129), 'turn_1\n', ' turn_1', 'turn/1', '\u0000'].map(isId)).toEqual(Array(6).fill(false));
});
