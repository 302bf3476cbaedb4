import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sql } from 'kysely';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import { loadConfig } from '../../src/config.ts';
import { ApiClient } from '../support/api-client.ts';
import { everturn } from '../support/command-line.ts';
import { createTestDatabase } from '../support/test-database.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let other: TestServer;
beforeAll(async () => {
  server = await startTestServer();
  other = await startTestServer({ env: { DATABASE_URL: server.database.url } });
});
afterAll(async () => {
  await other.stop();
  await server.stop();
});

const keys = (...args: string[]) =>
  everturn(['keys', ...args], { EVERTURN_DATA: server.dataDir, DATABASE_URL: server.database.url });

/** A new key and its id. */
async function create(...args: string[]): Promise<{ key: string; id: string; stderr: string }> {
  const { code, stdout, stderr } = await keys('create', ...args);
  expect([code, stdout], stderr).toEqual([0, expect.stringMatching(/^everturn_[0-9a-f]{64}\n$/)]);
  return { key: stdout.trim(), id: /key_[0-9a-z]{26}/.exec(stderr)?.[0] ?? '', stderr };
}

const statusOf = async (client: ApiClient) => (await client.send('GET', '/v1/agents')).status;

test('keys are created and revoked while servers run', async () => {
  const here = (key?: string) => new ApiClient(server.server.url, key);
  const there = (key?: string) => new ApiClient(other.server.url, key);

  // No key is required until one exists.
  expect([await statusOf(here()), await statusOf(here('whatever'))]).toEqual([200, 200]);
  const first = await create('ann', '--role', 'admin');
  expect(first.stderr).toMatch(/ann, role admin.*not shown again[^]*first key/);
  await expect.poll(() => statusOf(here())).toBe(401);
  await expect.poll(() => statusOf(there())).toBe(401);
  expect([await statusOf(here(first.key)), await statusOf(there(first.key))]).toEqual([200, 200]);

  // A second key works at once, and both are the same subject.
  const second = await create('ann', '--expires-days', '0.5');
  expect(second.stderr).not.toMatch('first key');
  const session = await here(first.key).createSession('demo');
  const own = await there(second.key).get(`/v1/agents/sessions/${session}`);
  expect(own.data.created_by_subject).toEqual({ subject_id: 'ann', subject_type: 'user', subject_slug: 'ann' });
  const bob = await create('bob');
  expect((await here(bob.key).send('GET', `/v1/agents/sessions/${session}`)).status).toBe(404);

  // A stream ends with the key that opened it; the turn continues.
  other.model.script('held', async (call) => {
    call.text('Slowly');
    await call.closed;
  });
  await here(first.key).putAgent('held', { model: { name: 'held' } });
  const held = await here(first.key).createSession('held');
  const reader = there(second.key).turn(held, 'hi');
  const stays = here(first.key).subscribe(held, await reader.turnId());
  await reader.says('Slowly');
  const revoked = await keys('revoke', second.id);
  expect([revoked.code, revoked.stderr]).toEqual([0, expect.stringContaining(`${second.id} of ann was revoked`)]);
  await expect.poll(() => statusOf(here(second.key))).toBe(401);
  await expect.poll(() => statusOf(there(second.key))).toBe(401);
  await expect(reader.done).rejects.toThrow(/terminated/);
  expect((await here(second.key).send('GET', '/v1/agents')).body.error.message).toMatch('was revoked');
  // The turn continues until an admin cancels those of its subject.
  const found = await here(first.key).get('/v1/x/agents/search-sessions?created_by_subject_id=ann');
  for (const { id } of found.data) await here(first.key).send('POST', `/v1/agents/sessions/${id}/cancel`, {});
  expect(await stays.end()).toMatchObject({ status: 'cancelled' });

  const list = (await keys('list')).stdout.trim().split('\n');
  expect(list.map((line) => line.split(/ {2,}/).slice(0, 3))).toEqual([
    ['id', 'name', 'role'],
    [first.id, 'ann', 'admin'],
    [second.id, 'ann', 'user'],
    [bob.id, 'bob', 'user'],
  ]);
  expect(list.map((line) => line.split(/ {2,}/)[5]?.split(' ')[0])).toEqual(['state', 'active', 'revoked', 'active']);

  // Without a valid key nothing is accepted.
  await keys('revoke', first.id);
  await keys('revoke', bob.id);
  await expect.poll(() => statusOf(here(first.key))).toBe(401);
  expect(await statusOf(here())).toBe(401);

  // Only hashes are stored.
  const stored = JSON.stringify(await server.database.rows.selectFrom('api_keys').selectAll().execute());
  for (const { key } of [first, second, bob]) expect(stored).not.toContain(key.slice('everturn_'.length));
});

test('errors in commands about keys are reported', async () => {
  const cases: [string[], number, RegExp][] = [
    [['create'], 2, /missing required argument 'name'/],
    [['create', 'a b'], 2, /letters, digits/],
    [['create', 'ann', '--role', 'root'], 2, /Allowed choices are admin, user, approver/],
    [['create', 'ann', '--expires-days', 'never'], 2, /positive number of days/],
    [['revoke', 'key_none'], 1, /there is no key key_none: `everturn keys list`/],
  ];
  for (const [args, code, message] of cases) {
    const answer = await keys(...args);
    expect([answer.code, answer.stdout], args.join(' ')).toEqual([code, '']);
    expect(answer.stderr).toMatch(message);
  }
});

test('an address that others can reach requires a key, which may be in the catalog', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-reach-'));
  const DATABASE_URL = `sqlite:${path.join(dataDir, 'catalog.db')}`;
  const env = { EVERTURN_DATA: dataDir, EVERTURN_HOST: '0.0.0.0', EVERTURN_PORT: '0', DATABASE_URL };
  const refused = await everturn(['start'], env);
  expect([refused.code, refused.stderr]).toEqual([
    1,
    expect.stringMatching(/EVERTURN_HOST is 0\.0\.0\.0.*keys create/),
  ]);
  expect((await everturn(['keys', 'create', 'ann'], env)).code).toBe(0);
  const open = await startTestServer({ env });
  expect(open.server.names).toEqual(['ann']);
  const url = open.server.url.replace('0.0.0.0', '127.0.0.1');
  expect(await statusOf(new ApiClient(url))).toBe(401);
  await open.stop();
  await rm(dataDir, { recursive: true, force: true });
});

test('commands that only read a catalog neither create one nor change its schema', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-look-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const expectRefusal = async (look: string, env: Record<string, string>, message: RegExp): Promise<void> => {
    const { code, stdout, stderr } = await everturn(look.split(' '), { EVERTURN_DATA: folder, ...env });
    expect([code, stdout, stderr], look).toEqual([1, '', expect.stringMatching(message)]);
  };
  for (const look of ['keys list', 'keys revoke key_1', 'turn inspect turn_1']) {
    await expectRefusal(look, {}, /^everturn: there is no catalog at .*: check DATABASE_URL and EVERTURN_DATA\./);
  }
  expect(await readdir(folder)).toEqual([]);

  const { url, rows, close } = await createTestDatabase(folder);
  onTestFinished(close);
  const other = { DATABASE_URL: url };
  const migrated = async (): Promise<unknown[]> => (await sql`select name from kysely_migration`.execute(rows)).rows;
  await rows.schema.createTable('something').addColumn('else', 'text').execute();
  await expectRefusal('keys list', other, /^everturn: there is no catalog (?:at|in) /);
  await rows.schema.dropTable('something').execute();
  const catalog = await Catalog.open(loadConfig(other).database, pino({ level: 'silent' }));
  await catalog.close();
  const rename = (from: string, to: string) =>
    sql`update kysely_migration set name = ${to} where name = ${from}`.execute(rows);
  await rename('0001-initial', '0000-earlier');
  const before = await migrated();
  await expectRefusal(
    'turn inspect turn_1',
    other,
    /^everturn: the catalog belongs to another version .*\(it lacks 0001-initial, has 0000-earlier\)/,
  );
  expect(await migrated()).toEqual(before);

  await rename('0000-earlier', '0001-initial');
  expect((await everturn(['keys', 'list'], { EVERTURN_DATA: folder, ...other })).code).toBe(0);
  await sql`insert into kysely_migration (name, timestamp) values ('9999-breaking', '2030-01-01')`.execute(rows);
  await expectRefusal(
    'keys list',
    other,
    /^everturn: the catalog belongs to another version .*\(it has 9999-breaking\)/,
  );
}, 240_000);
