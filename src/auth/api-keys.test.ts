import path from 'node:path';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { pino } from 'pino';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { Catalog } from '../features/catalog.ts';
import { loadConfig } from '../config.ts';
import { subjectNamed, type Role } from '../core/subject.ts';
import { hashOfKey, newApiKey, Keyring } from './api-keys.ts';

afterEach(() => void vi.useRealTimers());

/** Freezes the time. */
function freeze(now: number): void {
  vi.useFakeTimers({ now });
  // The cache treats a start time of 0 as unset.
  vi.advanceTimersByTime(1);
}

async function open(env: Record<string, string> = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-keys-'));
  const log = pino({ level: 'silent' });
  const catalog = await Catalog.open({ kind: 'sqlite', file: path.join(folder, 'catalog.db'), sync: 'normal' }, log);
  const keyring = await Keyring.open({ catalog, config: loadConfig(env), log });
  onTestFinished(async () => {
    keyring.close();
    await catalog.close();
    await rm(folder, { recursive: true });
  });
  const add = async (id: string, expiresAt: string | null = null): Promise<string> => {
    const key = newApiKey();
    const row = { id, hash: hashOfKey(key), name: 'ann', role: 'approver' as const, expires_at: expiresAt };
    await catalog.keys.insert({ ...row, created_at: '2026-01-01T00:00:00.000Z' });
    return key;
  };
  return { catalog, keyring, add };
}

const ann = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };

test('a key is a prefix for secret scanners and 256 random bits', () => {
  expect(newApiKey()).toMatch(/^everturn_[0-9a-f]{64}$/);
  expect(newApiKey()).not.toBe(newApiKey());
});

test('keys of the configuration and of the catalog are found, other keys are not', async () => {
  const { keyring, add } = await open({ EVERTURN_API_KEYS: 'bob:admin=key-of-bob' });
  const key = await add('key_1');
  expect(await keyring.find(key)).toEqual({ caller: { subject: ann, roles: ['approver'], keyId: 'key_1' } });
  expect(await keyring.find('key-of-bob')).toMatchObject({ caller: { roles: ['admin'] } });
  for (const wrong of ['', 'key_1', hashOfKey(key), key.slice(0, -1), `${key}0`, 'bob', newApiKey()]) {
    expect(await keyring.find(wrong), wrong).toBeUndefined();
  }
  expect(await keyring.names()).toEqual(['bob', 'ann']);
});

test('a flood of unknown keys takes one query at a time and does not delay a valid key', async () => {
  const { catalog, keyring, add } = await open();
  const key = await add('key_1');
  const queries = vi.spyOn(catalog.keys, 'findAll');
  const unknown = Array.from({ length: 2_500 }, () => keyring.find(newApiKey()));
  expect(await keyring.find(key)).toHaveProperty('caller');
  expect(await Promise.all(unknown)).toEqual(unknown.map(() => undefined));
  expect(queries.mock.calls.map(([hashes]) => hashes.length)).toEqual([1, 1_000, 1_000, 500]);
});

test('keys are looked up again after a failed query', async () => {
  const { catalog, keyring, add } = await open();
  const key = await add('key_1');
  const down = new Error('the catalog is unavailable');
  vi.spyOn(catalog.keys, 'findAll').mockRejectedValueOnce(down).mockRejectedValueOnce(down);
  const failed = await Promise.allSettled([keyring.find(key), keyring.find(newApiKey())]);
  expect(failed).toEqual([
    { status: 'rejected', reason: down },
    { status: 'rejected', reason: down },
  ]);
  expect(await keyring.find(key)).toHaveProperty('caller');
});

test('a revoked key stops working within two seconds, an expired one at once', async () => {
  const { catalog, keyring, add } = await open();
  const start = Date.parse('2026-01-01T00:00:00.000Z');
  freeze(start - 1);
  const key = await add('key_1');
  const short = await add('key_2', new Date(start + 1_000).toISOString());
  expect(await keyring.find(key)).toHaveProperty('caller');
  expect(await keyring.find(short)).toHaveProperty('caller');
  await catalog.keys.revoke('key_1', '2026-01-01T00:00:00.500Z');
  vi.advanceTimersByTime(1_000);
  expect(await keyring.find(short)).toEqual({ ended: 'has expired' });
  // Using the key does not extend the cache entry.
  expect(await keyring.find(key)).toHaveProperty('caller');
  vi.advanceTimersByTime(1_001);
  expect(await keyring.find(key)).toEqual({ ended: 'was revoked' });
  // The first revocation counts.
  expect(await catalog.keys.revoke('key_1', '2027-01-01T00:00:00.000Z')).toMatchObject({
    revoked_at: '2026-01-01T00:00:00.500Z',
  });
  expect(await catalog.keys.revoke('key_9', '2027-01-01T00:00:00.000Z')).toBeUndefined();
  expect(await keyring.names()).toEqual([]);
});

test('the use of a key is recorded once a minute', async () => {
  const { catalog, keyring, add } = await open();
  freeze(Date.parse('2025-12-31T23:59:59.999Z'));
  const key = await add('key_1');
  const noted = vi.spyOn(catalog.keys, 'recordUse');
  const lastUsed = async () => {
    await Promise.all(noted.mock.results.map(({ value }) => value as Promise<void>));
    return (await catalog.keys.list())[0]?.last_used_at;
  };
  for (let i = 0; i < 59; i++) {
    await keyring.find(key);
    vi.advanceTimersByTime(1_000);
  }
  expect(await lastUsed()).toBe('2026-01-01T00:00:00.000Z');
  vi.advanceTimersByTime(2_000);
  await keyring.find(key);
  expect(await lastUsed()).toBe('2026-01-01T00:01:01.000Z');
  expect(noted).toHaveBeenCalledTimes(2);
});

test('requests need no key until the first is created, and always need one after that', async () => {
  vi.useFakeTimers();
  const { catalog, keyring, add } = await open();
  expect(keyring.isKeyless).toBe(true);
  await add('key_1');
  await vi.advanceTimersByTimeAsync(2_000);
  await expect.poll(() => keyring.isKeyless).toBe(false);
  await catalog.keys.revoke('key_1', '2026-01-01T00:00:00.000Z');
  await vi.advanceTimersByTimeAsync(10_000);
  expect(keyring.isKeyless).toBe(false);
  const next = await Keyring.open({ catalog, config: loadConfig({}), log: pino({ level: 'silent' }) });
  expect(next.isKeyless).toBe(false);
});

test('an earlier caller has the roles of its own key, not of others of its subject; a bearer those that it had', async () => {
  const issuer = 'https://login.example.com';
  const env = {
    EVERTURN_API_KEYS: 'ann:user=key-of-ann,ann:admin=other-key-of-ann,bob:admin=key-of-bob',
    EVERTURN_OIDC_ISSUER: issuer,
    EVERTURN_OIDC_AUDIENCE: 'everturn',
  };
  const { catalog, keyring, add } = await open(env);
  const caller = (name: string, roles: Role[], keyId?: string) => ({ subject: subjectNamed(name), roles, keyId });
  const rolesNow = (...earlier: Parameters<typeof caller>) => keyring.rolesNow(caller(...earlier));
  const key = await add('key_1');
  await add('key_2', '2026-01-02T00:00:00.000Z');
  expect(await keyring.find(key)).toEqual({ caller: caller('ann', ['approver'], 'key_1') });
  expect(await rolesNow('ann', ['user'], 'key_1')).toEqual(['approver']);
  expect(await rolesNow('ann', ['user'], 'key_2')).toEqual([]);
  expect(await rolesNow('ann', ['user'], 'key_3')).toEqual([]);
  await catalog.keys.revoke('key_1', '2026-01-02T00:00:00.000Z');
  expect(await rolesNow('ann', ['approver'], 'key_1')).toEqual([]);
  expect(await rolesNow('ann', ['user'])).toEqual(['user']);
  expect(await rolesNow('ann', ['approver'])).toEqual([]);
  expect(await rolesNow('bob', ['user'])).toEqual([]);
  expect(await rolesNow('eve', ['admin'])).toEqual([]);
  expect(await rolesNow(`${issuer}#eve`, ['user'])).toEqual(['user']);
  // Names of keys that are no subjects of the issuer.
  for (const name of [issuer, `${issuer}x`, `${issuer}x#eve`, `x${issuer}#eve`]) {
    expect(await rolesNow(name, ['user']), name).toEqual([]);
  }
  const keyless = await open();
  expect(await keyless.keyring.rolesNow(caller('local', ['admin']))).toEqual(['admin']);
});

test('an earlier bearer has no role once no issuer is configured', async () => {
  const { keyring } = await open({ EVERTURN_API_KEYS: 'ann:user=key-of-ann' });
  const rolesNow = (name: string) => keyring.rolesNow({ subject: subjectNamed(name), roles: ['user'] });
  expect(await rolesNow('ann')).toEqual(['user']);
  for (const name of ['https://login.example.com#eve', 'undefined#eve', '#eve']) {
    expect(await rolesNow(name), name).toEqual([]);
  }
});

test('the subjects that are known have the roles of all of their working keys', async () => {
  const { catalog, keyring, add } = await open({
    EVERTURN_API_KEYS: 'ann:user=key-of-ann,ann:admin=other-key-of-ann,bob=key-of-bob',
  });
  await add('key_1');
  await add('key_2', '2020-01-02T00:00:00.000Z');
  const known = async () => Object.fromEntries([...(await keyring.rolesById())].map(([id, roles]) => [id, [...roles]]));
  expect(await known()).toEqual({ ann: ['user', 'admin', 'approver'], bob: ['user'] });
  await catalog.keys.revoke('key_1', '2020-01-02T00:00:00.000Z');
  expect(await known()).toEqual({ ann: ['user', 'admin'], bob: ['user'] });
  const { keyring: keyless } = await open();
  expect([...(await keyless.rolesById())]).toEqual([['local', new Set(['admin'])]]);
});

test('a subject of whom only the id is known has the rights that each of its working credentials gives', async () => {
  const { catalog, keyring, add } = await open({
    EVERTURN_API_KEYS: 'root:admin=key-of-root,ann:admin=key-of-ann,bob:admin=key-of-bob,bob:user=other-key-of-bob',
  });
  const mayWrite = (subjectId: string) => keyring.mayOnServer(subjectId, 'writeAgents');
  expect(await Promise.all(['root', 'ann', 'bob', 'eve'].map(mayWrite))).toEqual([true, true, false, false]);
  await add('key_1');
  expect(await mayWrite('ann')).toBe(false);
  await catalog.keys.revoke('key_1', '2020-01-02T00:00:00.000Z');
  expect(await mayWrite('ann')).toBe(true);
  const { keyring: keyless } = await open();
  expect(await keyless.mayOnServer('local', 'writeAgents')).toBe(true);
  const issuer = 'https://login.example.com';
  const oidc = await open({ EVERTURN_OIDC_ISSUER: issuer, EVERTURN_OIDC_AUDIENCE: 'everturn' });
  const bearer = `${issuer}#ann`;
  expect(await oidc.keyring.mayOnServer(bearer, 'writeAgents')).toBe(false);
  const said = { subjectId: bearer, roles: ['admin'] as const, issuedAt: '2026-01-01T00:00:00.000Z' };
  await oidc.catalog.subjectRoles.record(said);
  expect(await oidc.keyring.mayOnServer(bearer, 'writeAgents')).toBe(true);
});

test('an earlier bearer has the roles of the newest of its tokens that was seen', async () => {
  const issuer = 'https://login.example.com';
  const { catalog, keyring } = await open({ EVERTURN_OIDC_ISSUER: issuer, EVERTURN_OIDC_AUDIENCE: 'everturn' });
  const recorded = vi.spyOn(catalog.subjectRoles, 'record');
  const caller = (roles: Role[]) => ({ subject: { ...ann, subjectId: `${issuer}#ann` }, roles });
  const rolesNow = async () => {
    await Promise.allSettled(recorded.mock.results.map(({ value }) => value as Promise<void>));
    return keyring.rolesNow(caller(['admin']));
  };
  const start = Date.parse('2026-01-01T00:00:00.000Z');
  const sees = (roles: Role[], seconds: number) =>
    keyring.recordBearer({ caller: caller(roles), issuedAt: start + seconds * 1000 });
  expect(await rolesNow()).toEqual(['admin']);
  for (let i = 0; i < 100; i++) sees(['admin'], i / 2);
  expect([await rolesNow(), recorded.mock.calls.length]).toEqual([['admin'], 1]);
  sees(['user'], 50);
  expect([await rolesNow(), recorded.mock.calls.length]).toEqual([['user'], 2]);
  // A token of before the demotion, at this process and at another one.
  sees(['admin'], 40);
  await catalog.subjectRoles.record({
    subjectId: `${issuer}#ann`,
    roles: ['admin'],
    issuedAt: '2026-01-01T00:00:40.000Z',
  });
  expect(await rolesNow()).toEqual(['user']);
  recorded.mockRejectedValueOnce(new Error('the catalog is unavailable'));
  sees(['approver'], 200);
  expect(await rolesNow()).toEqual(['user']);
  sees(['approver'], 200);
  expect(await rolesNow()).toEqual(['approver']);
});
