import { createHash } from 'node:crypto';
import { DummyDriver, Kysely, type Dialect } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Database } from './database.ts';
import { describeSchema } from './describe-schema.ts';
import { MIGRATION_HASHES, migrations } from './migrations.ts';
import { sha256 } from '../lib/hash.ts';

export interface MigrationTables {
  kysely_migration: { name: string };
  migration_hashes: { name: string; hash: string };
}

/** The hashes of this version's migrations on one kind of database, by name, in their order. */
export type MigrationHashes = ReadonlyMap<string, string>;

export async function hashMigrations(dialect: Dialect): Promise<MigrationHashes> {
  const hashes = new Map<string, string>();
  for (const [name, migration] of Object.entries(migrations)) hashes.set(name, await hashOfSql(migration, dialect));
  return hashes;
}

/**
 * The SHA-256 of the statements that a migration sends to an empty database: of what it does, and not of its source. They
 * go to a driver without a database, so queries find no rows.
 */
async function hashOfSql(migration: Migration, dialect: Dialect): Promise<string> {
  const hash = createHash('sha256');
  const db = new Kysely<unknown>({
    dialect: {
      createAdapter: () => dialect.createAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (self) => dialect.createIntrospector(self),
      createQueryCompiler: () => dialect.createQueryCompiler(),
    },
    log: ({ query: { sql, parameters } }) => void hash.update(`${sql}\n${JSON.stringify(parameters)}\n`),
  });
  await migration.up(db);
  await db.destroy();
  return hash.digest('hex');
}

/** The migrations of this version, each of which also stores its hash, in its transaction. */
export function storingHashes(hashes: MigrationHashes): Record<string, Migration> {
  const rows = [...hashes].map(([name, hash]) => ({ name, hash }));
  const entries = Object.entries(migrations).map(([name, migration]): [string, Migration] => {
    const isStored = (row: { name: string }): boolean =>
      // The migration that creates the table also stores the hashes of those before it.
      row.name === name || (name === MIGRATION_HASHES && row.name < name);
    return [
      name,
      {
        up: async (db: Kysely<MigrationTables>) => {
          await migration.up(db);
          if (name < MIGRATION_HASHES) return;
          await db.insertInto('migration_hashes').values(rows.filter(isStored)).execute();
        },
      },
    ];
  });
  return Object.fromEntries(entries);
}

/** The names of the migrations that the database has; none if it is empty. */
export async function appliedMigrations(db: Kysely<MigrationTables>): Promise<string[]> {
  const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
  if (!tables.some(({ name }) => name === 'kysely_migration')) return [];
  const rows = await db.selectFrom('kysely_migration').select('name').execute();
  return rows.map(({ name }) => name);
}

/**
 * The SHA-256 of the schema that `0001-initial` makes, as described by {@link describeSchema}. Catalogs of commits before
 * `0002-migration-hashes` have no stored hashes, and in some of these commits `0001-initial` made another schema.
 */
const INITIAL_SCHEMA: Readonly<Record<Database['kind'], string>> = {
  sqlite: 'ab2d61ef1aff58964c5c8efb58497f963d3a8e5063010ec160fc8d9a1003dbab',
  postgres: '84b0edf7286b88e3fe4f25fb76f993031f95e8eff4a0f8af0ae5833bd72cb4f1',
};

/**
 * The names of the migrations that the database has in another form than this version. Without stored hashes, the schema
 * must be the one that `0001-initial` makes.
 */
export async function otherMigrations(
  db: Kysely<MigrationTables>,
  kind: Database['kind'],
  hashes: MigrationHashes,
): Promise<string[]> {
  // In one snapshot, because another process may be migrating. A transaction of SQLite always has one.
  const snapshot = db.transaction().setIsolationLevel('repeatable read');
  return snapshot.execute(async (reader) => {
    const applied = await appliedMigrations(reader);
    if (applied.length === 0) return [];
    if (!applied.includes(MIGRATION_HASHES)) {
      const schema = await describeSchema(reader, kind);
      return sha256(schema.join('\n')) === INITIAL_SCHEMA[kind] ? [] : applied;
    }
    const rows = await reader.selectFrom('migration_hashes').selectAll().execute();
    const stored = new Map(rows.map(({ name, hash }) => [name, hash]));
    return applied.filter((name) => hashes.has(name) && hashes.get(name) !== stored.get(name));
  });
}
