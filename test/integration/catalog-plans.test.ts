import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { catalogCalls } from '../support/catalog-calls.ts';
import { PlannedCatalog } from '../support/catalog-plans.ts';
import { fillCatalog } from '../support/filled-catalog.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

let folder: string;
let created: TestDatabase;
let planned: PlannedCatalog;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-plans-'));
  created = await createTestDatabase(folder);
  const { database } = loadConfig({ DATABASE_URL: created.url });
  await fillCatalog(database, { runs: 3_000 });
  planned = new PlannedCatalog(database);
});
afterAll(async () => {
  await planned.close();
  await created.close();
  await rm(folder, { recursive: true, force: true });
});

test.each(catalogCalls())('$name reads no table as a whole', async ({ call }) => {
  expect(await planned.scansOf(call, { isIndexed: true })).toEqual([]);
});

test('a missing index is noticed', async () => {
  await sql`drop index idempotency_by_age`.execute(created.rows);
  // With connections of its own: SQLite keeps the plans of prepared statements.
  const other = new PlannedCatalog(loadConfig({ DATABASE_URL: created.url }).database);
  onTestFinished(() => other.close());
  const forget = catalogCalls().find(({ name }) => name.startsWith('idempotency.forget'));
  expect(await other.scansOf(forget!.call, { isIndexed: true })).toEqual([
    expect.stringMatching(/^(SCAN|Seq Scan) idempotency in delete from "idempotency"/),
  ]);
});
