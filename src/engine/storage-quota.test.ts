import { expect, test } from 'vitest';
import { StorageQuota } from './storage-quota.ts';

const MB = 1024 * 1024;

/** The error with which a request is refused. */
const refusalOf = async (quota: StorageQuota, subject: string, bytes: number) =>
  (await quota.admit(subject, bytes)).refusal;

function quotaOf({ stored = 0, megabytes = 1 }: { stored?: number; megabytes?: number }) {
  const world = { stored, now: 0 };
  const storedBytes = { of: (subject: string) => Promise.resolve(subject === 'ann' ? world.stored : 0) };
  const quota = new StorageQuota({
    catalog: { storedBytes },
    limits: () => ({ storedMegabytesPerSubject: megabytes }),
    now: () => world.now,
  });
  return { world, quota };
}

test('a request that would take its subject above the quota is refused with all that its sender needs', async () => {
  const { quota } = quotaOf({ stored: MB - 100 });
  expect(await refusalOf(quota, 'ann', 101)).toMatchObject({
    code: 'storage_full',
    message:
      'your sessions store 1048476 bytes, and with the 101 bytes of this request they would exceed the 1048576 bytes that ' +
      'one subject may store (EVERTURN_STORED_MEGABYTES_PER_SUBJECT): delete sessions or drafts that you do not need',
  });
  expect(await refusalOf(quota, 'bob', 101)).toBeUndefined();
  expect(await refusalOf(quota, 'ann', 100)).toBeUndefined();
});

test('requests at once do not pass for one: each counts until it is answered, or what it brings must be stored', async () => {
  const { quota, world } = quotaOf({});
  const sizes = [0.4, 0.4, 0.4, 0.4].map((megabytes) => Math.floor(megabytes * MB));
  const refusals = await Promise.all(sizes.map((bytes) => refusalOf(quota, 'ann', bytes)));
  expect(refusals.map((refusal) => refusal?.code)).toEqual([undefined, undefined, 'storage_full', 'storage_full']);
  expect(refusals[2]?.message).toContain(
    `your sessions store 0 bytes, ${2 * Math.floor(0.4 * MB)} more have arrived, and`,
  );
  const [first] = await Promise.all([quota.admit('bob', MB), quota.admit('carl', MB)]);
  first.answered();
  expect(await refusalOf(quota, 'bob', MB)).toBeUndefined();
  expect(await refusalOf(quota, 'carl', MB)).toBeDefined();
  world.now = 10_000;
  expect(await refusalOf(quota, 'ann', Math.floor(0.4 * MB))).toBeUndefined();
});

test('without the setting there is no quota, and the catalog is not asked', async () => {
  const { quota } = quotaOf({ stored: NaN, megabytes: Infinity });
  expect(await refusalOf(quota, 'ann', 1e12)).toBeUndefined();
});
