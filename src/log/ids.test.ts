import { expect, test } from 'vitest';
import { eventId, newId } from './ids.ts';
import { spanIdOf } from './trace-context.ts';

const TURN = 'turn_01m80gr3nvzcagq9avex1a3eyz';

test('what is derived from the id of a turn is the same for ever: it is stored nowhere', () => {
  expect(eventId(TURN, 1)).toBe('evt_01m80gr3nvzcagq9avex1a3ez0');
  expect(eventId(TURN, 1_234_567)).toBe('evt_01m80gr3nvzcagq9avex1b94k6');
  expect(eventId(`turn_${'0'.repeat(10)}${'z'.repeat(16)}`, 2)).toBe(`evt_${'0'.repeat(25)}1`);
  expect(spanIdOf(TURN)).toBe('0ba55b7742a1bbdf');
});

test('an id that is no ULID is no number either', () => {
  expect(() => eventId('turn_01m80gr3nvzcagq9avex1a3eyU', 1)).toThrow(RangeError);
  expect(() => spanIdOf('turn_01m80gr3nvzcagq9avex1a3ey-')).toThrow(RangeError);
  expect(() => spanIdOf(newId('turn'))).not.toThrow();
});
