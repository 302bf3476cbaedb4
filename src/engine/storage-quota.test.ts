import { expect, test } from 'vitest';
import { StorageQuota } from './storage-quota.ts';

const MB = 1024 * 1024;

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
  expect(await quota.refusal('ann', 101)).toMatchObject({
    code: 'storage_full',
    message:
      'your sessions store 1048476 bytes, and with the 101 bytes of this request they would exceed the 1048576 bytes that ' +
      'one subject may store (EVERTURN_STORED_MEGABYTES_PER_SUBJECT): delete sessions or drafts that you do not need',
  });
  expect(await quota.refusal('bob', 101)).toBeUndefined();
  expect(await quota.refusal('ann', 100)).toBeUndefined();
});

test('requests at once do not pass for one: each counts until the catalog counts it', async () => {
  const { quota, world } = quotaOf({});
  const sizes = [0.4, 0.4, 0.4, 0.4].map((megabytes) => Math.floor(megabytes * MB));
  const refusals = await Promise.all(sizes.map((bytes) => quota.refusal('ann', bytes)));
  expect(refusals.map((refusal) => refusal?.code)).toEqual([undefined, undefined, 'storage_full', 'storage_full']);
  expect(refusals[2]?.message).toContain(
    `your sessions store 0 bytes, ${2 * Math.floor(0.4 * MB)} more have arrived, and`,
  );
  world.now = 10_000;
  expect(await quota.refusal('ann', Math.floor(0.4 * MB))).toBeUndefined();
});

test('without the setting there is no quota, and the catalog is not asked', async () => {
  const { quota } = quotaOf({ stored: NaN, megabytes: Infinity });
  expect(await quota.refusal('ann', 1e12)).toBeUndefined();
});
