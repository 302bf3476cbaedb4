import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { sql } from 'kysely';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import { isCatalogUnavailable } from '../../src/catalog/database.ts';
import { CatalogError } from '../../src/catalog/migrate.ts';
import { loadConfig } from '../../src/config.ts';
import { folded } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { Postgres } from '../support/postgres.ts';
import { createDatabase, runSql } from '../support/sql.ts';
import { held, say } from '../support/scripted-model.ts';
import { openRows } from '../support/test-database.ts';
import { startTestServer } from '../support/test-server.ts';

let postgres: Postgres;
beforeAll(async () => {
  postgres = await Postgres.start();
});
afterAll(() => postgres.stop());

const NOW = '2026-11-02T10:00:00.000Z';

/** The connections to a database that wait for a lock. */
const WAITING = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";

/** A catalog, with its log lines. */
async function open(url: string): Promise<{ catalog: Catalog; logged: PassThrough }> {
  const logged = new PassThrough({ encoding: 'utf8' });
  const catalog = await Catalog.open(loadConfig({ DATABASE_URL: url }).database, pino(logged));
  onTestFinished(() => catalog.close());
  return { catalog, logged };
}

/** A time-out applies to every statement, so it must be long enough for a busy machine. */
function withParameter(url: string, name: string, value: string): string {
  const changed = new URL(url);
  changed.searchParams.set(name, value);
  return changed.href;
}

test('PostgreSQL stopped and started during a turn: 503 meanwhile, and nothing is lost', async () => {
  const server = await startTestServer({ postgresUrl: postgres.url });
  onTestFinished(() => server.stop());
  const model = held(
    (call) => call.text('I go '),
    (call) => call.text('on').finish(),
  );
  const chat = await server.chat({ scripts: [say('before'), model.script, say('after')] });
  const before = await chat.turn('one').done;
  const reader = chat.turn('two');
  await reader.says('I go');

  await postgres.down();
  const refused = await server.api.send('POST', `${chat.path}/turns`, { input: [] });
  expect([refused.status, refused.body.error.code]).toEqual([503, 'unavailable']);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await server.api.send('GET', chat.path)).status).toBe(503);
  // Its other checks, too, may take too long, and that of the catalog before it has tried to connect.
  await eventually(async () => {
    const ready = await server.api.send('GET', '/readyz');
    expect([ready.status, ready.body.problems]).toEqual([
      503,
      expect.arrayContaining([expect.stringMatching(/^the catalog cannot be used: PostgreSQL cannot be reached: /)]),
    ]);
  });
  model.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I go on' } });

  await postgres.up();
  const turnId = await reader.turnId();
  const { rows } = server.database;
  const turn = rows.selectFrom('turns').select('archived').where('id', '=', turnId);
  await expect.poll(() => turn.executeTakeFirst()).toEqual({ archived: 1 });
  expect((await chat.turn('three').end()).status).toBe('done');
  const turns = await server.api.list<{ id: string }>(`${chat.path}/turns`, 25);
  expect(turns.length).toBe(3);
  expect(folded(await server.api.subscribe(chat.sessionId, turns[2]?.id ?? '').done)).toEqual(folded(before));
});

test('the model is called before anything of a turn is written, and once', async () => {
  const server = await startTestServer({ postgresUrl: postgres.url });
  onTestFinished(() => server.stop());
  const gate = held(
    () => undefined,
    (call) => call.text('Early.').finish(),
  );
  const chat = await server.chat({ scripts: [gate.script] });
  const rows = openRows(server.database.url);
  onTestFinished(() => rows.destroy());
  const turn = await rows.transaction().execute(async (other) => {
    await sql`LOCK TABLE idempotency, turns IN EXCLUSIVE MODE`.execute(other);
    const begun = chat.turn('hi');
    await gate.reached;
    return begun;
  });
  gate.release();
  await turn.says('Early.');
  expect((await turn.end()).status).toBe('done');
  expect(chat.requests()).toHaveLength(1);
});

test('idle connections that break are a line in the log, without the password', async () => {
  const { catalog, logged } = await open(await createDatabase(postgres.url));
  await Promise.all([catalog.check(NOW), catalog.check(NOW)]);
  const line = once(logged, 'data');
  await postgres.down();
  const [text] = (await line) as [string];
  expect(text).toContain('an idle connection to PostgreSQL broke');
  expect(text.split('\n')[0]?.length).toBeLessThan(300);
  await expect(catalog.check(NOW)).rejects.toSatisfy(isCatalogUnavailable);
  await postgres.up();
  await eventually(() => catalog.check(NOW));
});

test('a version is immutable, even if its agent is deleted while others store it', async () => {
  const url = await createDatabase(postgres.url);
  const { catalog } = await open(url);
  const put = (i: number) => catalog.agents.put('a', { model: { name: `m${i}` } }, NOW);
  const rows = openRows(url);
  onTestFinished(() => rows.destroy());
  const waiting = async (count: number) => expect.poll(() => runSql(url, WAITING)).toHaveLength(count);
  await put(0);
  // All three arrive while the row is locked, and get it one after the other.
  const work = await rows.transaction().execute(async (db) => {
    await sql`select 1 from agents for update`.execute(db);
    const first = put(1);
    await waiting(1);
    const deleted = catalog.agents.delete('a');
    await waiting(2);
    const second = put(2);
    await waiting(3);
    return { first, deleted, second };
  });
  expect(await work.deleted).toBe(true);
  const [first, second] = [await work.first, await work.second];
  const versions = await rows
    .selectFrom('agent_versions')
    .select(['version', 'spec_hash'])
    .orderBy('version')
    .execute();
  expect(versions.slice(1)).toEqual([first, second].map(({ version, spec_hash }) => ({ version, spec_hash })));
});

test('a webhook is deleted while an attempt to deliver to it is recorded, and neither fails', async () => {
  const url = await createDatabase(postgres.url);
  const { catalog } = await open(url);
  const rows = openRows(url);
  onTestFinished(() => rows.destroy());
  const [id, session_id] = ['whk_1', 'ses_1'];
  const webhook = { id, face: 'agents-v2' as const, url: 'https://x.example', events: '["*"]', secret: 's' };
  await rows
    .insertInto('webhooks')
    .values({ ...webhook, created_at: NOW, updated_at: NOW })
    .execute();
  const delivery = { id: 'dlv_1', webhook_id: id, sequence: 1, type: 'session.changed' as const, session_id };
  await rows
    .insertInto('deliveries')
    .values({ ...delivery, created_at: NOW })
    .execute();
  await rows
    .insertInto('delivery_lanes')
    .values({ webhook_id: id, session_id, last_sequence: 1, due_at: NOW })
    .execute();
  const work = await rows.transaction().execute(async (db) => {
    // As `Deliveries.record` does.
    await db.updateTable('delivery_lanes').set({ due_at: NOW }).where('webhook_id', '=', id).execute();
    const deleted = catalog.webhooks.delete('agents-v2', id);
    await expect.poll(() => runSql(url, WAITING)).toHaveLength(1);
    await db.updateTable('deliveries').set({ status: 'delivered' }).where('webhook_id', '=', id).execute();
    return { deleted };
  });
  expect(await work.deleted).toBe(true);
  expect(await rows.selectFrom('deliveries').selectAll().execute()).toEqual([]);
});

test('a connection that breaks during a transaction fails the next statement of that transaction, and no other', async () => {
  const url = await createDatabase(postgres.url);
  const rows = openRows(url);
  onTestFinished(() => rows.destroy());
  const broken = rows.transaction().execute(async (db) => {
    const {
      rows: [backend],
    } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(db);
    const pid = backend?.pid ?? 0;
    await runSql(url, `select pg_terminate_backend(${pid})`);
    await expect.poll(() => runSql(url, `select 1 from pg_stat_activity where pid = ${pid}`)).toEqual([]);
    await sql`select 1`.execute(db);
  });
  await expect(broken).rejects.toSatisfy(isCatalogUnavailable);
  await sql`select 1`.execute(rows);
});

test('a statement that exceeds its time is reported as an unavailable catalog', async () => {
  const url = await createDatabase(postgres.url);
  const { catalog } = await open(withParameter(url, 'statement_timeout', '2000'));
  const rows = openRows(url);
  onTestFinished(() => rows.destroy());
  await rows.transaction().execute(async (db) => {
    await sql`lock table idempotency`.execute(db);
    await expect(catalog.check(NOW)).rejects.toSatisfy(isCatalogUnavailable);
  });
  await eventually(() => catalog.check(NOW));
});

test('a server that stops responding is given up, and its connection is not used again', async () => {
  const url = await createDatabase(postgres.url);
  const { catalog } = await open(withParameter(url, 'query_timeout', '3000'));
  const backends = `select pid from pg_stat_activity where application_name = 'everturn' and datname = current_database()`;
  const pid = await eventually(async () => {
    await catalog.check(NOW);
    const found = await runSql<{ pid: number }>(url, backends);
    // One that was given up before may not have ended yet.
    expect(found).toHaveLength(1);
    return found[0]?.pid ?? 0;
  });
  process.kill(pid, 'SIGSTOP');
  try {
    await expect(catalog.check(NOW)).rejects.toSatisfy(isCatalogUnavailable);
    await eventually(() => catalog.check(NOW));
  } finally {
    process.kill(pid, 'SIGCONT');
  }
});

test('a catalog that cannot be used stops the start with the remedy, and without the password', async () => {
  const url = new URL(await createDatabase(postgres.url));
  url.password = 'a-wrong-password';
  const wrong = open(url.href);
  await expect(wrong).rejects.toThrow(CatalogError);
  await expect(wrong).rejects.toThrow(/password authentication failed.*DATABASE_URL/);
  await expect(wrong).rejects.not.toThrow(/a-wrong-password/);
  await expect(open(Object.assign(url, { pathname: '/nowhere' }).href)).rejects.toThrow(/DATABASE_URL/);
});

test('a database that cannot store every character is rejected', async () => {
  const url = await createDatabase(
    postgres.url,
    "encoding 'SQL_ASCII' locale_provider libc locale 'C' template template0",
  );
  await expect(open(url)).rejects.toThrow(/SQL_ASCII.*encoding 'UTF8'/);
});
