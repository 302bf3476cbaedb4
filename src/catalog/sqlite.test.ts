import { mkdtemp, rm } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Kysely } from 'kysely';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { NodeSqliteDialect } from './sqlite.ts';

interface Tables {
  words: { id: number; word: string };
}

let folder: string;
let file: string;
let db: Kysely<Tables>;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-sqlite-'));
  file = path.join(folder, 'words.db');
  db = new Kysely({ dialect: new NodeSqliteDialect({ file, sync: 'normal' }) });
  await db.schema.createTable('words').addColumn('id', 'integer').addColumn('word', 'text').execute();
});
afterEach(async () => {
  vi.restoreAllMocks();
  await db.destroy();
  await rm(folder, { recursive: true });
});

const insert = (words: string[]) =>
  db
    .insertInto('words')
    .values(words.map((word, id) => ({ id, word })))
    .execute();
const find = (id: number) => db.selectFrom('words').selectAll().where('id', '=', id).execute();

test('a statement is prepared once, except for a long one', async () => {
  const prepare = vi.spyOn(DatabaseSync.prototype, 'prepare');
  await insert(['one']);
  await insert(['another']);
  expect(await find(0)).toEqual([
    { id: 0, word: 'one' },
    { id: 0, word: 'another' },
  ]);
  expect(await find(1)).toEqual([]);
  expect(prepare).toHaveBeenCalledTimes(2);

  const many = Array.from({ length: 500 }, () => 'many');
  await insert(many);
  await insert(many);
  expect(prepare).toHaveBeenCalledTimes(4);
  expect(await find(499)).toHaveLength(2);
});

test('a prepared statement follows a migration by another process', async () => {
  await insert(['one']);
  expect(await find(0)).toEqual([{ id: 0, word: 'one' }]);
  using other = new DatabaseSync(file);
  other.exec("ALTER TABLE words ADD COLUMN language TEXT DEFAULT 'English'");
  expect(await find(0)).toEqual([{ id: 0, word: 'one', language: 'English' }]);
});
