import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { Catalog } from '../catalog/catalog.ts';
import { Cipher } from '../encryption/cipher.ts';
import { hashOf } from '../hash.ts';
import { claimRequest, isClaimed } from './idempotency.ts';

const first = { id: 'k1', key: randomBytes(32) };
const second = { id: 'k2', key: randomBytes(32) };

test.each([undefined, 'once'])('a request (key: %s) is known again when the encryption has changed', async (key) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-idempotency-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const open = async (keys: { id: string; key: Buffer }[]): Promise<Catalog> => {
    const database = { kind: 'sqlite' as const, file: path.join(folder, 'catalog.db'), sync: 'normal' as const };
    const catalog = await Catalog.open(database, pino({ level: 'silent' }), new Cipher(keys));
    onTestFinished(() => catalog.close());
    return catalog;
  };
  const request = { scope: 'ann/turns', key, bodyHash: hashOf('yes'), sessionId: 'ses_1' };
  let before: string | undefined;
  for (const [i, keys] of [[], [first], [second, first], [first, second]].entries()) {
    const catalog = await open(keys);
    expect(await isClaimed({ ...request, catalog })).toBe(before !== undefined);
    const claim = await claimRequest({ ...request, catalog, resourceId: `turn_${i}` });
    expect([claim.isNew, claim.resourceId]).toEqual([before === undefined, before ?? 'turn_0']);
    before = claim.resourceId;
    const other = { ...request, catalog, bodyHash: hashOf('no') };
    expect(await isClaimed(other)).toBe(key !== undefined);
    if (key) await expect(claimRequest({ ...other, resourceId: 'turn_x' })).rejects.toThrow('another body');
  }
  const catalog = await open([second]);
  await claimRequest({ ...request, key: undefined, bodyHash: hashOf('perhaps'), catalog, resourceId: 'turn_9' });
  const keys = await catalog.idempotency.taken({ scope: 'ann/turns', keys: [`body:${hashOf('perhaps')}`] }, '');
  expect(keys, 'the hash of a short body would be guessed').toBeUndefined();
});
