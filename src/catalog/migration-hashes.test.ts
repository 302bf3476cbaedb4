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
      '0008-stored-bytes-of-subjects': '7374fb3419c966c0c57a6a1e6b7dc3fb5caebcdb7cbc72c186d66cbfebccce2b',
      '0009-sandboxes': '7d5101663236ec517976055a31c17c02ccc4d1a30ddaed880fdfdd7f7be88a8f',
      '0010-permission-rules': 'c5a50c65421964460a19b9dff37696243c4c7e6d49cbe92fd05aab839a8b8c55',
      '0011-sandbox-state': '638601e8f45c0c109065a3a4352f6c5e5f76a8d285ea0738a0caa64c97eb923a',
      '0012-kernel-resets': '05ef170fe2ebceb68998d0791007d1c81ac28a7e46e17cab256b0a39897a74bb',
      '0013-saved-code-tools': 'ce0f23e7d712a4f820ada43516ac5527c7bdcf2d3cad428a2d220d12e6d9088a',
      '0014-kernel-snapshots': 'c13af4654d777bb15df6c7284cc07821c77937de21a94378d9baf0a47425ba04',
      '0015-isolation-of-hosts': '1c0c778d8462a683cf027885d7c0acbd93904ac582279b3ce6527cfe8a42f100',
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
      '0008-stored-bytes-of-subjects': 'a7ee09279658352af43c1b686458e44d43f6ccb967147a74540a8963eae49db9',
      '0009-sandboxes': '291f3f80722d44bb28d361fddeb4062e585d8933901613152362c606b1cfe7fb',
      '0010-permission-rules': '1d12de90b6775c011f56866d5591491c5b6fb3f855f9ec29cd792ee5cdaf9f71',
      '0011-sandbox-state': 'fe90ec3794b100ba4624fb471e3df846ef08195041c769d9abdb47450633ddc6',
      '0012-kernel-resets': 'ef57911bca247f4e2034b94b5aaa1c65f47244040bc79728f8b236c519aad195',
      '0013-saved-code-tools': '61ddd70c9f80ce7263e000eccbd2a859d09eacb16ebe1edc38d860687bc98a24',
      '0014-kernel-snapshots': '01031b1820ca9650c0d4c96e9a152aaedd8ae7548b7dbba03c36767893dd57c8',
      '0015-isolation-of-hosts': '39c5034e8292ab50ae8eccdcf14db2674576cafea4120e543a991d063e3464a3',
    },
  ],
])('no migration has changed on $kind', async (database, pinned) => {
  expect(Object.fromEntries(await hashMigrations(dialectOf(database, log)))).toEqual(pinned);
});
