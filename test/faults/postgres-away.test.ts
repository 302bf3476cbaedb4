import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { Postgres } from '../support/postgres.ts';
import { World } from './support/world.ts';

/** Row 5: PostgreSQL, under the catalog and under Temporal, is repeatedly unavailable under load. */

/** At least; the load continues until the last of the restarts is over. */
const TURNS = process.env['LONG'] ? 1_000 : 24;
const RESTARTS = 3;
const RESTART_MS = 5_000;
const SESSIONS = 8;
const TIMEOUT_MS = process.env['LONG'] ? 7_200_000 : 300_000;

test('PostgreSQL is restarted every 5 s, under load', { timeout: TIMEOUT_MS }, async () => {
  const postgres = await Postgres.start({ isDurable: true });
  onTestFinished(() => postgres.stop());
  const world = await World.start({ postgres, workers: 2 });
  onTestFinished(() => world.stop());
  let left = TURNS;
  let restarts = 0;
  const goesOn = (): boolean => left-- > 0 || restarts < RESTARTS;
  const people = Array.from({ length: SESSIONS }, async () => {
    const sessionId = await world.session();
    while (goesOn()) {
      const tools = [{ name: 'pay' }, { name: 'sync' }];
      const turn = await world.turn(sessionId, world.plan({ say: 'I see to it.', tools }, { say: 'It is done.' }));
      expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'It is done.' } });
    }
  });
  const all = Promise.all(people);
  let isOver = false;
  void all.finally(() => (isOver = true)).catch(() => undefined);
  for (;;) {
    await Promise.race([sleep(RESTART_MS), all]);
    if (isOver) break;
    await world.fault(() => postgres.down());
    await postgres.up();
    restarts += 1;
  }
  await all;
  await world.check();
});
