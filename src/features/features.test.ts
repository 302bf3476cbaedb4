import { DatabaseSync } from 'node:sqlite';
import { expect, onTestFinished, test } from 'vitest';
import { openTestCatalog } from '../../test/support/test-catalog.ts';

test('the removal of a session leaves none of its rows in a table of a feature', async () => {
  const { catalog, database } = await openTestCatalog();
  // Each table gets a row without the rows to which that refers.
  const db = new DatabaseSync(database.url.replace('sqlite:', ''), { enableForeignKeyConstraints: false });
  onTestFinished(() => db.close());
  const names = (sql: string) =>
    db
      .prepare(sql)
      .all()
      .map(({ name }) => String(name));
  const columnsOf = (table: string) => names(`SELECT name FROM pragma_table_info('${table}')`);
  const tables = names(`SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`).filter((table) =>
    columnsOf(table).includes('session_id'),
  );
  for (const table of tables) {
    const columns = columnsOf(table);
    const values = columns.map((column) => (column === 'session_id' ? `'ses_1'` : '0'));
    db.exec(`INSERT INTO ${table} (${columns.join()}) VALUES (${values.join()})`);
  }
  await catalog.sessions.forget('ses_1', { now: new Date().toISOString(), again: undefined });
  const left = tables.filter((table) => db.prepare(`SELECT 1 FROM ${table} WHERE session_id = 'ses_1'`).get());
  // The past runs of a schedule name sessions that may be gone. Turns are removed before, one by one.
  expect(left).toEqual(['schedule_runs', 'turns']);
});
