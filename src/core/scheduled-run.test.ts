import { expect, test } from 'vitest';
import { scheduledForOf } from './scheduled-run.ts';

const scheduled = new Date('2026-11-28T06:00:00.000Z');
const started = new Date('2026-11-28T06:41:00.000Z');

test('a run is for the time at which it was triggered or scheduled, however late it starts', () => {
  expect(scheduledForOf(undefined, { scheduled, started })).toBe('2026-11-28T06:00:00.000Z');
  const triggeredAt = '2026-11-28T06:20:00.000Z';
  expect(scheduledForOf({ triggeredAt }, { scheduled: undefined, started })).toBe(triggeredAt);
  expect(scheduledForOf(undefined, { scheduled: undefined, started })).toBe('2026-11-28T06:41:00.000Z');
});
