import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import { isCatalogUnavailable } from '../../src/catalog/database.ts';
import { loadConfig } from '../../src/config.ts';
import { SessionIndex } from '../../src/features/session-stream/session-index.ts';
import { TurnNotFound } from '../../src/engine/turn-log-reader.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

const NOW = '2026-11-22T08:00:00.000Z';

let folder: string;
let database: TestDatabase;
let catalogs: Catalog[];
/** The lengths of logs that are not in the archive: undefined while the turn runs, absent if its history is lost. */
let lengths: Map<string, number | undefined>;
/** Turns that were started, and not indexed by their processes. */
let unindexed: [turnId: string, sequence: number][];
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-session-index-'));
  database = await createTestDatabase(folder);
  [catalogs, lengths, unindexed] = [[], new Map(), []];
});
afterEach(async () => {
  for (const catalog of catalogs) await catalog.close();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

/** The index as each process has it. */
async function open(): Promise<{ catalog: Catalog; index: SessionIndex }> {
  const catalog = await Catalog.open(loadConfig({ DATABASE_URL: database.url }).database, pino({ level: 'silent' }));
  catalogs.push(catalog);
  const parts = {
    catalog,
    logs: {
      length: (id: string) => {
        return lengths.has(id) ? Promise.resolve(lengths.get(id)) : Promise.reject(new TurnNotFound(id));
      },
    },
    turnIndex: {
      reconcileRequests: async () => {
        for (const [turnId, sequence] of unindexed.splice(0)) await accept(catalog, turnId, sequence);
      },
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the methods that are called
  return { catalog, index: new SessionIndex(parts as unknown as ConstructorParameters<typeof SessionIndex>[0]) };
}

async function accept({ turns }: Catalog, turnId: string, sequence: number): Promise<void> {
  await turns.accept({ turnId, sessionId: 's', previousTurnId: null, sequence, createdAt: NOW, title: null });
}

/** Adds a turn with a log of this length to the archive. */
async function archive(catalog: Catalog, turnId: string, sequence: number, length: number): Promise<void> {
  await accept(catalog, turnId, sequence);
  const turn = database.rows.updateTable('turns').set({ archived: 1, archived_through: length });
  await turn.where('id', '=', turnId).execute();
}

async function insertSession({ sessions, agents }: Catalog): Promise<void> {
  const subject = { subject_id: 'ann', subject_type: 'user', subject_slug: 'ann' };
  const spec_hash = await agents.putSpec({ model: { name: 'm' } }, NOW);
  const draft = { type: 'session/draft' as const, agent_name: null, agent_version: null, title: null, metadata: null };
  await sessions.insert({ id: 's', ...draft, ...subject, spec_hash, created_at: NOW, updated_at: NOW });
}

/** The turn after a position, and the number of events before it. */
async function after(index: SessionIndex, position: number): Promise<[string, number] | undefined> {
  for (;;) {
    try {
      const turn = await index.turnAfter('s', position);
      return turn && [turn.id, turn.events_before];
    } catch (error) {
      // On SQLite a transaction of one process fails during that of another.
      if (!isCatalogUnavailable(error)) throw error;
    }
  }
}

test('a position leads to its turn, and the end of the last turn to none', async () => {
  const { catalog, index } = await open();
  await insertSession(catalog);
  expect(await after(index, 0)).toBe(undefined);
  await expect(after(index, 1)).rejects.toThrow('start again');
  await archive(catalog, 'a', 1, 5);
  await archive(catalog, 'b', 2, 2);
  expect(await after(index, 0)).toEqual(['a', 0]);
  expect(await after(index, 4)).toEqual(['a', 0]);
  expect(await after(index, 5)).toEqual(['b', 5]);
  expect(await after(index, 7)).toBe(undefined);
  await expect(after(index, 8)).rejects.toThrow('start again');
  lengths.set('c', undefined);
  await accept(catalog, 'c', 3);
  expect(await after(index, 7)).toEqual(['c', 7]);
  // It runs: its stream decides whether it has this event.
  expect(await after(index, 70)).toEqual(['c', 7]);
  // It has ended, and is not in the archive yet.
  lengths.set('c', 3);
  expect(await after(index, 10)).toBe(undefined);
  await accept(catalog, 'd', 4);
  lengths.set('d', undefined);
  expect(await after(index, 10)).toEqual(['d', 10]);
});

test('a turn that is indexed late is counted before those that were started after it', async () => {
  const { catalog, index } = await open();
  await insertSession(catalog);
  await archive(catalog, 'a', 1, 5);
  await archive(catalog, 'c', 3, 4);
  lengths.set('b', 2);
  unindexed.push(['b', 2]);
  expect(await after(index, 5)).toEqual(['b', 5]);
  expect(await after(index, 7)).toEqual(['c', 7]);
});

test('turns whose histories were lost are passed over; the places of others do not change when they are removed', async () => {
  const { catalog, index } = await open();
  await insertSession(catalog);
  await archive(catalog, 'a', 1, 5);
  for (const [i, id] of ['lost', 'gone'].entries()) await accept(catalog, id, i + 2);
  expect(await after(index, 5)).toBe(undefined);
  // A reader has received events of it.
  expect(await after(index, 8)).toBe(undefined);
  await archive(catalog, 'd', 4, 3);
  const place = (await after(index, 5))?.[1] ?? 0;
  expect(await after(index, 5)).toEqual(['d', place]);
  expect(await after(index, 8)).toEqual(['d', place]);
  for (const id of ['lost', 'gone']) await catalog.turns.remove(id);
  await archive(catalog, 'e', 5, 3);
  expect(await after(index, 8)).toEqual(['d', place]);
  expect(await after(index, place + 3)).toEqual(['e', place + 3]);
});

test('processes that place the turns of a session concurrently agree', async () => {
  const [one, two] = [await open(), await open()];
  await insertSession(one.catalog);
  for (let n = 1; n <= 120; n++) await archive(one.catalog, `turn_${n}`, n, 3);
  const found = await Promise.all(
    Array.from({ length: 24 }, (_, i) => after((i % 2 ? one : two).index, 15 * i).then((turn) => [i, turn])),
  );
  expect(found).toEqual(found.map(([i]) => [i, [`turn_${5 * Number(i) + 1}`, 15 * Number(i)]]));
  const { places } = await database.rows
    .selectFrom('turns')
    .select((eb) => eb.fn.countAll<number>().filterWhere('events_before', 'is not', null).as('places'))
    .executeTakeFirstOrThrow();
  expect(places).toBe(120);
});

test('turns are followed in one order by all processes, also if a sequence was assigned twice', async () => {
  const [one, two] = [await open(), await open()];
  await insertSession(one.catalog);
  for (const [i, id] of ['a', 'b', 'c'].entries()) await archive(one.catalog, id, i + 1, 3);
  const following = async (index: SessionIndex): Promise<string[]> => {
    const ids: string[] = [];
    for (let last: Parameters<SessionIndex['turnFollowing']>[1]; ;) {
      const turn = await index.turnFollowing('s', last);
      if (!turn) return ids;
      ids.push(turn.id);
      last = { turn, length: 3 };
    }
  };
  expect(await following(one.index)).toEqual(['a', 'b', 'c']);
  // The state of Temporal was restored, in which the session had one turn.
  for (const [i, id] of ['d', 'e'].entries()) await archive(one.catalog, id, i + 2, 3);
  expect(await following(two.index)).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(await following(one.index)).toEqual(['a', 'b', 'c', 'd', 'e']);
});
