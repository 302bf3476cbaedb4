import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Database } from '../../src/catalog/database.ts';
import { catalogCalls } from '../../test/support/catalog-calls.ts';
import { PlannedCatalog } from '../../test/support/catalog-plans.ts';
import { fillCatalog } from '../../test/support/filled-catalog.ts';
import { Postgres } from '../../test/support/postgres.ts';
import { createDatabase } from '../../test/support/sql.ts';
import { alternate, median, round, timed } from '../statistics.ts';

/** The numbers of runs in the two catalogs that are compared. */
const [FEW, MANY] = [10_000, 1_000_000];

const ROUNDS = 7;

/** A call that is slower with many runs by more than this depends on their number. */
const MAX_RATIO = 3;

/** Times of one call below this are those of the measurement itself, in milliseconds. */
const NOISE_MS = 0.3;

/** What is measured of the catalog on one kind of database. Times are medians in milliseconds. */
export interface CatalogReport {
  /** By the name of the call: with few runs, with many, and the second as a multiple of the first. */
  calls: Record<string, [few: number, many: number, ratio: number]>;
  /** The calls that depend on the number of runs. */
  slower: string[];
  /** The steps of plans, in the catalog with many runs, that read a growing table from one end to the other. */
  scans: Record<string, string[]>;
  /** The median of the ratios. */
  ratio: number;
}

type Say = (line: string) => void;

/** Times each list, count and sweep of the catalog over many runs beside the same over few. */
export async function measureCatalog(kind: Database['kind'], say: Say): Promise<CatalogReport> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-bench-catalog-'));
  const postgres = kind === 'postgres' ? await Postgres.start() : undefined;
  const database = async (name: string): Promise<Database> =>
    postgres
      ? { kind: 'postgres', url: await createDatabase(postgres.url) }
      : { kind: 'sqlite', file: path.join(folder, name), sync: 'normal' };
  try {
    return await compare(await database('few.db'), await database('many.db'), say);
  } finally {
    await postgres?.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function compare(few: Database, many: Database, say: Say): Promise<CatalogReport> {
  const catalogs: PlannedCatalog[] = [];
  try {
    const [small, large] = [await filled(few, FEW, say), await filled(many, MANY, say)];
    catalogs.push(small, large);
    const report: CatalogReport = { calls: {}, slower: [], scans: {}, ratio: 0 };
    for (const { name, call } of catalogCalls()) {
      // Also warms up: the first call reads the pages from the disk and handles entries that are due.
      await call(small.catalog);
      const scans = await large.scansOf(call);
      if (scans.length > 0) report.scans[name] = scans;
      const times = await alternate(ROUNDS, {
        few: () => timed(() => call(small.catalog)),
        many: () => timed(() => call(large.catalog)),
      });
      const ratio = Math.max(times.many, NOISE_MS) / Math.max(times.few, NOISE_MS);
      report.calls[name] = [round(times.few, 2), round(times.many, 2), round(ratio)];
      if (ratio > MAX_RATIO) report.slower.push(name);
    }
    report.ratio = round(median(Object.values(report.calls).map(([, , ratio]) => ratio)), 2);
    return report;
  } finally {
    for (const one of catalogs) await one.close();
  }
}

async function filled(database: Database, runs: number, say: Say): Promise<PlannedCatalog> {
  const elapsed = await timed(() => fillCatalog(database, { runs }));
  say(`${database.kind} with ${runs} runs was filled in ${round(elapsed / 1000)} s`);
  return new PlannedCatalog(database);
}
