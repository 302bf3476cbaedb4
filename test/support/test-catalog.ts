import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { onTestFinished } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { Catalog } from '../../src/features/catalog.ts';
import { createTestDatabase, type TestDatabase } from './test-database.ts';

/** An encrypted catalog in a database of its own, both until the end of the test. */
export async function openTestCatalog(): Promise<{ catalog: Catalog; database: TestDatabase }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-catalog-'));
  const database = await createTestDatabase(folder);
  const cipher = new Cipher([{ id: 'k', key: randomBytes(32) }]);
  const { database: settings } = loadConfig({ DATABASE_URL: database.url });
  const catalog = await Catalog.open(settings, pino({ level: 'silent' }), cipher);
  onTestFinished(async () => {
    await catalog.close();
    await database.close();
    await rm(folder, { recursive: true, force: true });
  });
  return { catalog, database };
}
