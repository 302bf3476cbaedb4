import { pino } from 'pino';
import { beforeEach, expect, test, vi } from 'vitest';
import { Archiver } from './archiver.ts';
import { TurnNotFound } from './turn-log-reader.ts';
import { eventually } from '../../test/support/eventually.ts';

const log = pino({ level: 'silent' });

const waits: number[] = [];
vi.mock('node:timers/promises', () => ({
  setTimeout: (ms: number, _value: undefined, { signal }: { signal: AbortSignal }) => {
    waits.push(ms);
    return signal.aborted ? Promise.reject(new Error('stopped')) : Promise.resolve();
  },
}));
beforeEach(() => {
  waits.length = 0;
});

test('an ended turn is archived a moment later, and again with growing pauses while that fails', async () => {
  const archived = Promise.withResolvers<string>();
  const archiver = new Archiver({
    archive: (turnId) => {
      if (waits.length < 9) return Promise.reject(new Error('the catalog is locked'));
      archived.resolve(turnId);
      return Promise.resolve();
    },
    log,
  });
  archiver.turnEnded('turn_1', 'ses_1');
  expect(await archived.promise).toBe('turn_1');
  expect(waits).toEqual([200, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
});

test('a turn that was deleted, or cannot be archived for an hour, is left to housekeeping', async () => {
  for (const [error, attempts] of [
    [new TurnNotFound('turn_1'), 1],
    [new Error('its log is damaged'), 60],
  ] as const) {
    const archive = vi.fn(() => Promise.reject(error));
    const archiver = new Archiver({ archive, log });
    archiver.turnEnded('turn_1', 'ses_1');
    await eventually(() => expect(archive).toHaveBeenCalledTimes(attempts));
    await archiver.stop();
    expect(archive).toHaveBeenCalledTimes(attempts);
  }
});

test('a worker that stops does not try again', async () => {
  const archiver: Archiver = new Archiver({
    archive: () => {
      void archiver.stop();
      return Promise.reject(new Error('the catalog is locked'));
    },
    log,
  });
  archiver.turnEnded('turn_1', 'ses_1');
  await archiver.stop();
  expect(waits.length).toBeLessThanOrEqual(1);
});
