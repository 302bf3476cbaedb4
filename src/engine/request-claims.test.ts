import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { Catalog } from '../features/catalog.ts';
import { KEY_LIFETIME_MS } from '../catalog/idempotency.ts';
import { subjectNamed } from '../core/subject.ts';
import { Cipher } from '../encryption/cipher.ts';
import { hashOf } from '../lib/hash.ts';
import { claimByKey, claimRequest, isClaimed } from './request-claims.ts';

const first = { id: 'k1', key: randomBytes(32) };
const second = { id: 'k2', key: randomBytes(32) };

/** Returns a function that opens the same catalog with the given encryption keys. */
async function catalogs(): Promise<(keys: { id: string; key: Buffer }[]) => Promise<Catalog>> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-idempotency-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const database = { kind: 'sqlite' as const, file: path.join(folder, 'catalog.db'), sync: 'normal' as const };
  return async (keys) => {
    const catalog = await Catalog.open(database, pino({ level: 'silent' }), new Cipher(keys));
    onTestFinished(() => catalog.close());
    return catalog;
  };
}

afterEach(() => void vi.useRealTimers());

test.each([undefined, 'once'])(
  'a repetition (key: %s) is recognized after the encryption keys have changed',
  async (key) => {
    const open = await catalogs();
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
    expect(keys, 'the hash of a short body could be guessed').toBeUndefined();
  },
);

test('a key is that of one caller and resource; without a key no request repeats another', async () => {
  const catalog = await (await catalogs())([]);
  let sent = 0;
  const claim = async (subject: string, resource: string, key: string | undefined) => {
    const caller = { subject: subjectNamed(subject), roles: [] };
    const resourceId = `r${++sent}`;
    return (await claimByKey({ catalog, caller, resource, key, body: {}, resourceId, sessionId: 's' })).resourceId;
  };
  const requests = [
    ['ann', 'runs', 'k'],
    ['ann', 'runs', 'k'],
    ['ben', 'runs', 'k'],
    ['ann', 'sessions', 'k'],
    ['ann', 'runs', undefined],
    ['ann', 'runs', undefined],
  ] as const;
  const claimed: string[] = [];
  for (const [subject, resource, key] of requests) claimed.push(await claim(subject, resource, key));
  expect(claimed).toEqual(['r1', 'r1', 'r3', 'r4', 'r5', 'r6']);
});

test('a request without a key is a repetition while the first one is in progress, and for 30 s after', async () => {
  vi.useFakeTimers({ toFake: ['Date', 'setInterval', 'clearInterval'], now: 0 });
  const catalog = await (await catalogs())([]);
  const request = { catalog, scope: 'ann/turns', key: undefined, bodyHash: hashOf('yes'), sessionId: 'ses_1' };
  let sent = 0;
  const send = () => claimRequest({ ...request, resourceId: `turn_${++sent}` });
  const pass = (seconds: number) => vi.advanceTimersByTimeAsync(seconds * 1000);

  const first = await send();
  await pass(44);
  // A proxy has timed out and repeats the request.
  const second = await send();
  expect([second.resourceId, second.isNew]).toEqual(['turn_1', false]);
  await first.lost();
  await pass(44);
  expect(await isClaimed(request)).toBe(true);
  await second.lost();
  await pass(29);
  expect(await isClaimed(request)).toBe(true);
  await pass(2);
  expect(await isClaimed(request)).toBe(false);

  // A process that has died renews no claim.
  const third = await send();
  expect(third.resourceId).toBe('turn_3');
  await pass(44);
  const renew = vi.spyOn(catalog.idempotency, 'renew').mockRejectedValue(new Error('gone'));
  await pass(31);
  expect(await isClaimed(request)).toBe(false);
  renew.mockRestore();
  await third.release();

  for (const end of ['delivered', 'release'] as const) {
    const last = await send();
    expect(last.isNew).toBe(true);
    await last[end]();
    await pass(10);
    expect(await isClaimed(request), end).toBe(false);
  }
  expect(vi.getTimerCount()).toBe(0);
});

test('a key stands for its request for 24 h, without one the same body is a new request after 30 s', async () => {
  vi.useFakeTimers({ toFake: ['Date', 'setInterval', 'clearInterval'], now: 0 });
  const catalog = await (await catalogs())([]);
  const request = { catalog, scope: 'ann/turns', bodyHash: hashOf('yes'), sessionId: 'ses_1' };
  const sent = await claimRequest({ ...request, key: undefined, resourceId: 'turn_1' });
  await sent.lost();
  await claimRequest({ ...request, key: 'once', resourceId: 'turn_2' });
  const isRepetitionAt = (ms: number) => {
    vi.setSystemTime(ms);
    return Promise.all([undefined, 'once'].map((key) => isClaimed({ ...request, key })));
  };
  const day = 24 * 3_600_000;
  expect(await isRepetitionAt(29_999)).toEqual([true, true]);
  expect(await isRepetitionAt(31_000)).toEqual([false, true]);
  expect(await isRepetitionAt(3_600_000)).toEqual([false, true]);
  expect(await isRepetitionAt(day - 1)).toEqual([false, true]);
  const repeated = await claimRequest({ ...request, key: 'once', resourceId: 'turn_3' });
  expect([repeated.resourceId, repeated.isNew]).toEqual(['turn_2', false]);
  expect(await isRepetitionAt(day + 1)).toEqual([false, false]);
  const next = await claimRequest({ ...request, key: 'once', resourceId: 'turn_4' });
  expect([next.resourceId, next.isNew]).toEqual(['turn_4', true]);
});

test('a key that is kept stands for its request as long as the session exists, and is released with it', async () => {
  vi.useFakeTimers({ toFake: ['Date', 'setInterval', 'clearInterval'], now: 0 });
  const catalog = await (await catalogs())([]);
  const send = (resourceId: string) =>
    claimRequest({
      catalog,
      scope: 'ann/runs',
      key: 'once',
      bodyHash: hashOf('yes'),
      sessionId: 'ses_1',
      isKept: true,
      resourceId,
    });
  await send('turn_1');
  vi.setSystemTime(365 * 24 * 3_600_000);
  // As housekeeping does.
  await catalog.idempotency.forget(new Date(Date.now() - KEY_LIFETIME_MS).toISOString());
  const repeated = await send('turn_2');
  expect([repeated.resourceId, repeated.isNew]).toEqual(['turn_1', false]);
  await repeated.release();
  expect((await send('turn_3')).isNew).toBe(true);
});

test('a repetition claims the key again that the first request has released, unless another one was faster', async () => {
  const catalog = await (await catalogs())([]);
  const request = { catalog, scope: 'ann/runs', key: 'once', bodyHash: hashOf('yes'), sessionId: 'ses_1' };
  const first = await claimRequest({ ...request, resourceId: 'turn_1' });
  const second = await claimRequest({ ...request, resourceId: 'turn_2' });
  expect(await second.confirm()).toBe(true);
  await first.release();
  expect(await second.confirm()).toBe(true);
  expect((await claimRequest({ ...request, resourceId: 'turn_3' })).resourceId).toBe('turn_1');
  await first.release();
  expect((await claimRequest({ ...request, resourceId: 'turn_4' })).isNew).toBe(true);
  expect(await second.confirm()).toBe(false);
});
