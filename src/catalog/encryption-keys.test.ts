import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { Cipher } from '../encryption/cipher.ts';
import { Catalog } from '../features/catalog.ts';

test('a catalog remembers the keys that encrypted it', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-keys-'));
  const log = pino({ level: 'silent' });
  const file = path.join(folder, 'catalog.db');
  const { encryptionKeys, close } = await Catalog.open({ kind: 'sqlite', file, sync: 'normal' }, log).then(
    (catalog) => ({ encryptionKeys: catalog.encryptionKeys, close: () => catalog.close() }),
  );
  onTestFinished(async () => {
    await close();
    await rm(folder, { recursive: true, force: true });
  });
  const [k1, k2, wrong] = ['k1', 'k2', 'k1'].map((id) => ({ id, key: randomBytes(32) }));
  if (!k1 || !k2 || !wrong) throw new Error('no keys');
  const register = (...keys: (typeof k1)[]) => encryptionKeys.register(new Cipher(keys), '2026-11-22T00:00:00.000Z');

  expect(await register()).toEqual([]);
  expect(await register(k1, k2)).toEqual([]);
  // The second key has encrypted nothing yet, so it may still be removed.
  expect(await register(k1)).toEqual([]);
  expect(await register(k2, k1)).toEqual([]);
  expect(await register(k2)).toEqual(['k1']);
  await expect(register()).rejects.toThrow(
    'EVERTURN_ENCRYPTION_KEYS is not set, but this catalog was encrypted with k1, k2',
  );
  await expect(register(k2, wrong)).rejects.toThrow('is not the key k1 that encrypted this catalog');
});
