import { pino } from 'pino';
import { expect, test } from 'vitest';
import { dialectOf, type Database } from './database.ts';
import { hashMigrations } from './migration-hashes.ts';

const log = pino({ level: 'silent' });

/**
 * Catalogs store these hashes, and a server refuses a catalog that has another. So add lines for a new migration, and
 * change none: if one differs, the migration was edited, or a newer Kysely writes other SQL for it.
 */
test.each<[Database, Record<string, string>]>([
  [
    { kind: 'sqlite', file: ':memory:', sync: 'normal' },
    {
      '0001-initial': '3b2518b4757c132a28189ccf32d8ab5575d53614d811044c8b5023abf6289650',
      '0002-migration-hashes': '4a5a61db2d202031f4bb62fceb600ee7cdbb2ce7c5cf90194c2d1374e6152b5c',
      '0003-subject-roles': 'f0041f968db8850a0d425b232c25d448b2550c3dee4237aa13cb5207aadf582b',
      '0004-stored-bytes': '63a36a8dca8ba4c924417dd13c6d2c5050207b4f3858b638827192c406c8c239',
      '0005-model-servers': '88cea2e15ae84f7404ea33797de26cf37fc3bbf3373e9a21ae85ea2648a4c6d6',
      '0006-small-indexes': 'a78160622918c122273229f867b219295e3d35ecde0ccff47e07222fb9ff49f0',
      '0007-states': '1f01487db50613838b6474a7c66b7f796383a38db707f3c2da03eecb26f2e715',
    },
  ],
  [
    { kind: 'postgres', url: 'postgresql://nobody@127.0.0.1/none' },
    {
      '0001-initial': 'a305b321178d6a069b68608238389877a440388d4ee78b4c3a72c501b179431e',
      '0002-migration-hashes': '6de5eaaaa8d47841ae6f6d6ee758875f4a40d915f8e5bacfd1b1ecbde9faa08a',
      '0003-subject-roles': '21608b1a940c3af0533beae3cc7ab8affacd2cc55b932b0713f059bbaf4bab34',
      '0004-stored-bytes': 'db414b71e92f7082d212230abd026563a40d577b7f6ccdacbd86a64bab82062b',
      '0005-model-servers': 'dc6f8445ef0a4a666bef00c4b7085471e8b0715436b8570fe188040c67bbb883',
      '0006-small-indexes': 'a78160622918c122273229f867b219295e3d35ecde0ccff47e07222fb9ff49f0',
      '0007-states': '860e68d13e221a00a44c5429048508f9a6b7442413c070d75a47a6ec506e8cf0',
    },
  ],
])('no migration has changed on $kind', async (database, pinned) => {
  expect(Object.fromEntries(await hashMigrations(dialectOf(database, log)))).toEqual(pinned);
});
