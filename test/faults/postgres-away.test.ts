import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { Postgres } from '../support/postgres.ts';
import { sized } from './support/sized.ts';
import { World } from './support/world.ts';

/** Row 5: PostgreSQL, under the catalog, and of the long run also under Temporal, is repeatedly unavailable under load. */

const IS_LONG = Boolean(process.env['LONG']);

/** At least; the load continues until the last of the restarts has ended. */
const TURNS = sized({ brief: 16, full: 24, long: 1_000 });
/** At least; a long load is disturbed until its end. */
const RESTARTS = 3;
/**
 * Between two restarts so many turns end. By the clock alone, restarts could follow each other faster than a busy machine
 * recovers from them, and no turn would ever end.
 */
const TURNS_BETWEEN = 4;
/** ... and at least this time passes. */
const RESTART_MS = IS_LONG ? 5_000 : 0;
const SESSIONS = 8;
const TIMEOUT_MS = IS_LONG ? 7_200_000 : 300_000;

test('PostgreSQL is restarted repeatedly, under load', { timeout: TIMEOUT_MS }, async () => {
  const postgres = await Postgres.start({ isDurable: true });
  onTestFinished(() => postgres.stop());
  // Temporal on PostgreSQL is built first, which takes CI longer than a tenth of its tests.
  const world = await World.start({ postgres, hasTemporalOnPostgres: IS_LONG, workers: 2 });
  onTestFinished(() => world.stop());
  let left = TURNS;
  let restarts = 0;
  /** Turns that are to end before the next restart. */
  let missing = 0;
  let enough = Promise.withResolvers<void>();
  const goesOn = (): boolean => left-- > 0 || restarts < RESTARTS;
  const people = Array.from({ length: SESSIONS }, async () => {
    const sessionId = await world.session();
    while (goesOn()) {
      const tools = [{ name: 'pay' }, { name: 'sync' }];
      const turn = await world.turn(sessionId, world.plan({ say: 'I see to it.', tools }, { say: 'It is done.' }));
      expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'It is done.' } });
      missing -= 1;
      if (missing === 0) enough.resolve();
    }
  });
  const all = Promise.all(people);
  let isOver = false;
  void all.finally(() => (isOver = true)).catch(() => undefined);
  const last = IS_LONG ? Infinity : RESTARTS;
  while (restarts < last) {
    missing = TURNS_BETWEEN;
    enough = Promise.withResolvers();
    await Promise.race([Promise.all([sleep(RESTART_MS), enough.promise]), all]);
    if (isOver) break;
    await world.fault(() => postgres.down());
    await postgres.up();
    restarts += 1;
  }
  await all;
  await world.check();
});
