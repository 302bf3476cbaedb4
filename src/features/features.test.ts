import { DatabaseSync } from 'node:sqlite';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { openTestCatalog } from '../../test/support/test-catalog.ts';
import type { SweepSources } from './feature.ts';
import { FEATURES } from './features.ts';

/** A catalog whose tables get rows without the rows to which these refer. */
async function openTables() {
  const { catalog, database } = await openTestCatalog();
  const db = new DatabaseSync(database.url.replace('sqlite:', ''), { enableForeignKeyConstraints: false });
  onTestFinished(() => db.close());
  const names = (sql: string) =>
    db
      .prepare(sql)
      .all()
      .map(({ name }) => String(name));
  const columnsOf = (table: string) => names(`SELECT name FROM pragma_table_info('${table}')`);
  const insert = (table: string, row: Record<string, string>) => {
    const columns = columnsOf(table);
    db.exec(
      `INSERT INTO ${table} (${columns.join()}) VALUES (${columns.map((column) => `'${row[column] ?? 0}'`).join()})`,
    );
  };
  return { catalog, db, names, columnsOf, insert };
}

test('the removal of a session leaves none of its rows in a table of a feature', async () => {
  const { catalog, db, names, columnsOf, insert } = await openTables();
  const tables = names(`SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`).filter((table) =>
    columnsOf(table).includes('session_id'),
  );
  for (const table of tables) insert(table, { session_id: 'ses_1' });
  await catalog.sessions.forget('ses_1', { now: new Date().toISOString(), again: undefined });
  const left = tables.filter((table) => db.prepare(`SELECT 1 FROM ${table} WHERE session_id = 'ses_1'`).get());
  // The past runs of a schedule name sessions that may be gone. Turns are removed before, one by one.
  expect(left).toEqual(['schedule_runs', 'turns']);
});

test('sweeps end idle times, delete old deliveries and sign-ins, and settle delegated work after admitted sessions', async () => {
  const { catalog, names, insert } = await openTables();
  const now = new Date('2026-11-10T12:00:00.000Z');
  const daysAgo = (days: number) => new Date(now.getTime() - days * 86_400_000).toISOString();
  insert('session_requests', { session_id: 'idle', idle_ends_at: daysAgo(-0.1) });
  insert('session_requests', { session_id: 'ended', idle_ends_at: daysAgo(0.1) });
  for (const days of [0.9, 1.1]) insert('mcp_sign_ins', { id: `sign-in of ${days}`, created_at: daysAgo(days) });
  for (const days of [2.9, 3.1]) {
    insert('deliveries', {
      id: `delivery of ${days}`,
      sequence: `${days}`,
      status: 'failed',
      created_at: daysAgo(days),
    });
  }
  const calls: string[] = [];
  const called = (name: string) => () => Promise.resolve(void calls.push(name));
  const sources = {
    catalog,
    sessionQueue: { sweep: called('start admitted sessions') },
    delegator: { settleAll: called('settle delegated work') },
    deliverer: { wake: called('wake the deliverer') },
    log: pino({ level: 'silent' }),
  } as unknown as SweepSources;
  const when = { now, began: now, stop: new AbortController().signal };
  for (const { sweep } of FEATURES) await sweep?.(sources, when);
  expect(calls).toEqual(['wake the deliverer']);
  for (const { sweepAfterTurns } of FEATURES) await sweepAfterTurns?.(sources, when);
  expect(calls).toEqual(['wake the deliverer', 'start admitted sessions', 'settle delegated work']);
  expect(names('SELECT session_id AS name FROM session_requests WHERE idle_ends_at IS NOT NULL')).toEqual(['idle']);
  expect(names('SELECT id AS name FROM mcp_sign_ins')).toEqual(['sign-in of 0.9']);
  expect(names('SELECT id AS name FROM deliveries')).toEqual(['delivery of 2.9']);
});
