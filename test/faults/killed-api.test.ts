import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RecordedTurn } from './support/recorder.ts';
import { sized } from './support/sized.ts';
import { World } from './support/world.ts';

/** Row 2: `kill -9` of the API while many readers follow many turns. */

const TURNS = sized({ brief: 6, full: 20 });
/** Readers per turn. */
const READERS = sized({ brief: 6, full: 10 });
const TEXT = 'one two three four five six';

let it: World;
beforeAll(async () => {
  it = await World.start({ apis: 2 });
});
afterAll(() => it.checkAndStop());

/** Turns whose models pause after the third word, each with all of its readers connected. */
async function heldTurns(): Promise<{ readers: RecordedTurn[][]; goOn: (from: number, to?: number) => void }> {
  const plans = Array.from({ length: TURNS }, () =>
    it.plan({ say: TEXT, hold: 3, tools: [{ name: 'look' }] }, { say: 'And on.' }),
  );
  const readers = await Promise.all(
    plans.map(async (plan) => {
      const first = await it.turn(await it.session(), plan);
      const others = Array.from({ length: READERS - 1 }, () => it.recorder.follow(first.sessionId, first.turnId));
      return [first, ...others];
    }),
  );
  await Promise.all(readers.flat().map((reader) => reader.words(3)));
  const goOn = (from: number, to?: number): void => plans.slice(from, to).forEach((plan) => it.planned.goOn(plan));
  return { readers, goOn };
}

/** The ends that all readers have received. */
async function ends(readers: RecordedTurn[][]): Promise<unknown[]> {
  return Promise.all(readers.flat().map(async ({ done }) => (await done).status));
}

test('one of two is killed: its readers resume at the other one, after their last event', async () => {
  const [one] = it.apis;
  if (!one) throw new Error('there are two');
  const { readers, goOn } = await heldTurns();
  const moment = await it.fault(() => one.kill());
  const cut = readers.flat().filter(({ api }) => api?.url === one.api.url);
  expect(cut.length).toBeGreaterThan((TURNS * READERS) / 4);
  // The disconnected readers get the message in progress again before any new text.
  await Promise.all(
    cut.map((reader) => reader.until(() => reader.connections > 1 && reader.resumedAfter(moment) !== undefined)),
  );
  goOn(0);
  expect(await ends(readers)).toEqual(Array.from({ length: TURNS * READERS }, () => 'done'));
  for (const reader of cut) await it.resumed(reader, moment);
  await one.start();
});

test('all are killed and restarted: every reader resumes, also where the turn has ended meanwhile', async () => {
  const { readers, goOn } = await heldTurns();
  const moment = await it.fault(() => Promise.all(it.apis.map((api) => api.kill())));
  // Half of the turns end while no API is running.
  goOn(0, TURNS / 2);
  await it.up();
  goOn(TURNS / 2);
  expect(await ends(readers)).toEqual(Array.from({ length: TURNS * READERS }, () => 'done'));
  for (const reader of readers.flat()) {
    expect(reader.connections).toBeGreaterThan(1);
    await it.resumed(reader, moment);
  }
});
