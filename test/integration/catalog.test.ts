import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sql } from 'kysely';
import { Migrator } from 'kysely/migration';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { BlobStore } from '../../src/blobs/blob-store.ts';
import { Catalog } from '../../src/features/catalog.ts';
import { dialectOf, isCatalogUnavailable } from '../../src/catalog/database.ts';
import { hashMigrations, storingHashes } from '../../src/catalog/migration-hashes.ts';
import { migrations } from '../../src/catalog/migrations.ts';
import type { SessionRow } from '../../src/catalog/schema.ts';
import { subjectAccount } from '../../src/features/budgets/spending-rows.ts';
import { loadConfig } from '../../src/config.ts';
import type { HistoryEvent } from '../../src/core/history.ts';
import { LOST_RECORD } from '../../src/core/lost-record.ts';
import { turnCreated } from '../../src/core/turn.ts';
import { Cipher, EncryptionKeyMissing } from '../../src/encryption/cipher.ts';
import type { LogEntry } from '../../src/core/records/log.ts';
import type { TurnDone } from '../../src/core/records/turn.ts';
import { NO_USAGE } from '../../src/core/records/usage.ts';
import { NO_TOTALS } from '../../src/core/turn-totals.ts';
import { Conversations } from '../../src/engine/conversations.ts';
import { TurnLogReader } from '../../src/engine/turn-log-reader.ts';
import type { TurnHistory } from '../../src/temporal/history.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import { collectBlobs } from '../../src/housekeeping/collect-blobs.ts';
import { eventually } from '../support/eventually.ts';
import { insertSession as insertSessionAt } from '../support/insert-session.ts';
import { modelMessage } from '../support/model-message.ts';
import { turnStart } from '../support/random-turn.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';
import { OnceLog } from '../../src/lib/once-log.ts';

const log = pino({ level: 'silent' });
const losses = new OnceLog(log);
const NOW = '2026-11-02T10:00:00.000Z';
const LATER = '2026-11-02T10:00:01.000Z';

let folder: string;
let database: TestDatabase;
let catalogs: Catalog[];
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-catalog-'));
  database = await createTestDatabase(folder);
  catalogs = [];
});
afterEach(async () => {
  for (const catalog of catalogs) await catalog.close();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

/** Opens a catalog as each process does. */
async function open(cipher?: Cipher): Promise<Catalog> {
  const catalog = await Catalog.open(loadConfig({ DATABASE_URL: database.url }).database, log, cipher);
  catalogs.push(catalog);
  return catalog;
}

/** Repeats a request while it is rejected temporarily, as clients do, and returns its result. */
async function persist<T>(work: () => Promise<T>, onRefusal: () => void = () => undefined): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isCatalogUnavailable(error)) throw error;
      onRefusal();
      await new Promise(setImmediate);
    }
  }
}

test('a catalog of a newer version opens unless one of its migrations is breaking', async () => {
  await open();
  const migrate = (name: string) =>
    sql`insert into kysely_migration (name, timestamp) values (${name}, '2999-01-01')`.execute(database.rows);
  await migrate('9998-column');
  await open();
  await migrate('9999-table-breaking');
  await expect(open()).rejects.toThrow(
    /^the catalog was migrated by a newer version, and this one cannot use it \(9999-table-breaking\): start the newer/,
  );
});

/** Makes what an earlier commit has made: one before the stored hashes, if only the initial migration is applied. */
async function migrateThrough(last: string): Promise<void> {
  const { database: kind } = loadConfig({ DATABASE_URL: database.url });
  const all = Object.entries(storingHashes(await hashMigrations(dialectOf(kind, log))));
  const earlier = Object.fromEntries(all.filter(([name]) => name <= last));
  const provider = { getMigrations: () => Promise.resolve(earlier) };
  const { error } = await new Migrator({ db: database.rows, provider }).migrateToLatest();
  if (error) throw error;
}

const migrateInitially = () => migrateThrough('0001-initial');

test('a catalog without stored hashes is adopted if it has the schema of the initial migration', async () => {
  await migrateInitially();
  const catalog = await open();
  await catalog.agents.put('a', { model: { name: 'm' } }, NOW);
  const stored = await sql<{ name: string }>`select name from migration_hashes order by name`.execute(database.rows);
  expect(stored.rows.map(({ name }) => name)).toEqual(Object.keys(migrations));
  expect(await (await open()).agents.get('a')).toMatchObject({ version: 1 });
});

test.each([
  ['lacks a table', 'drop table run_secrets'],
  ['lacks an index', 'drop index turns_by_place'],
  ['has another column', 'alter table turns add column state text'],
  ['has other keys', 'drop table marks; create table marks (name text, at text not null)'],
])('a catalog without stored hashes that %s is refused, and stays as it is', async (_, statements) => {
  await migrateInitially();
  for (const statement of statements.split(';')) await sql.raw(statement).execute(database.rows);
  const tables = async () => (await database.rows.introspection.getTables()).map(({ name }) => name);
  const before = await tables();
  await expect(open()).rejects.toThrow(
    /^the catalog was made by an unreleased version of Everturn, with another 0001-initial: start the version that made/,
  );
  expect(await tables()).toEqual(before);
});

test('a catalog with another migration of the same name is refused by servers and by commands', async () => {
  await open();
  await sql`update migration_hashes set hash = 'another' where name = '0001-initial'`.execute(database.rows);
  const refusal = /^the catalog was made by an unreleased version of Everturn, with another 0001-initial: /;
  await expect(open()).rejects.toThrow(refusal);
  const { database: existing } = loadConfig({ DATABASE_URL: database.url });
  await expect(Catalog.openExisting(existing, log)).rejects.toThrow(refusal);
});

test('a catalog that becomes incomplete while it is used fails its check', async () => {
  const catalog = await open();
  await catalog.check(NOW);
  await sql`alter table turns add column of_a_newer_version text`.execute(database.rows);
  await catalog.check(NOW);
  await sql`drop table run_secrets`.execute(database.rows);
  await expect(catalog.check(NOW)).rejects.toThrow(
    /^it is incomplete: \d of its columns and indexes are missing, first /,
  );
});

const claimOf = (resourceId: string, now = NOW) => ({
  scope: 's',
  key: 'k',
  resourceId,
  sessionId: resourceId,
  bodyHash: 'h',
  now,
});

const insertSession = (catalog: Catalog, id: string, type?: SessionRow['type']): Promise<void> =>
  insertSessionAt(catalog, { id, at: NOW, ...(type && { type }) });

test('several processes open a new catalog concurrently', async () => {
  const opened = await Promise.all(Array.from({ length: 5 }, () => open()));
  for (const catalog of opened) await catalog.check(NOW);
});

test('an agent that is stored concurrently gets one version for each, without a gap', async () => {
  const [one, two] = [await open(), await open()];
  const specs = Array.from({ length: 8 }, (_, i) => ({ model: { name: `m${i}` } }));
  const put = await Promise.all(specs.map((spec, i) => persist(() => (i % 2 ? one : two).agents.put('a', spec, NOW))));
  expect(put.map(({ version }) => version).sort((a, b) => a - b)).toEqual(specs.map((_, i) => i + 1));
  const versions = await database.rows.selectFrom('agent_versions').selectAll().orderBy('version').execute();
  expect(versions.map(({ version }) => version)).toEqual(specs.map((_, i) => i + 1));
  for (const { version, spec_hash: hash } of put) expect(versions[version - 1]?.spec_hash).toBe(hash);
  const newest = await one.agents.get('a');
  expect(newest).toMatchObject({ version: 8, spec_hash: versions[7]?.spec_hash });
});

test('an agent that is stored again unchanged keeps its version and its time', async () => {
  const catalog = await open();
  const first = await catalog.agents.put('a', { model: { name: 'm' } }, NOW);
  expect(await catalog.agents.put('a', { model: { name: 'm' } }, LATER)).toEqual(first);
  const second = await catalog.agents.put('a', { model: { name: 'other' } }, LATER);
  expect(second).toMatchObject({ version: 2, created_at: NOW, updated_at: LATER });
  expect(await catalog.agents.get('a')).toEqual(second);
});

test('an agent is read as it was stored, with keys that the format does not have and a policy that fits all calls', async () => {
  const catalog = await open();
  const spec: AgentSpec = {
    model: { name: 'm' },
    config: { decision_policies: [{ match: {}, decision: 'ask' }] },
  };
  Object.assign(spec, { other: 1 });
  await catalog.agents.put('a', spec, NOW);
  expect((await (await open()).agents.get('a'))?.spec).toEqual(spec);
});

test('one of several concurrent claims of a key succeeds, and all get its resource', async () => {
  const [one, two] = [await open(), await open()];
  const claims = await Promise.all(
    Array.from({ length: 20 }, (_, i) => persist(() => (i % 2 ? one : two).idempotency.claim(claimOf(`r${i}`), NOW))),
  );
  expect(new Set(claims.map(({ resourceId }) => resourceId)).size).toBe(1);
  expect(claims.filter(({ isNew }) => isNew).length).toBe(1);
});

test('a key that is released while others claim it is claimed by exactly one of them', async () => {
  const [one, two] = [await open(), await open()];
  for (let i = 0; i < 50; i += 1) {
    const held = { ...claimOf(`r${i}`), key: `k${i}` };
    await one.idempotency.claim(held, NOW);
    const [claim] = await Promise.all([
      persist(() => two.idempotency.claim({ ...held, resourceId: 'other' }, NOW)),
      persist(() => one.idempotency.release(held)),
    ]);
    expect(claim).toEqual({ resourceId: claim.isNew ? 'other' : `r${i}`, isSameBody: true, isNew: claim.isNew });
  }
});

test('a text that the database cannot hold is stored with U+FFFD in its place, and found by itself', async () => {
  const catalog = await open();
  const claim = { scope: 's', resourceId: 'r', sessionId: '', bodyHash: 'b', now: NOW };
  for (const [key, stored] of [
    ['a\0b', 'a\ufffdb'],
    ['a\ud800c', 'a\ufffdc'],
  ] as const) {
    expect(await catalog.idempotency.claim({ ...claim, key }, NOW)).toMatchObject({ isNew: true });
    expect(await catalog.idempotency.taken({ scope: 's', keys: [key] }, NOW)).toBe(stored);
  }
});

test('an expired claim is forgotten and replaced by a new one', async () => {
  const catalog = await open();
  await catalog.idempotency.claim(claimOf('old'), NOW);
  expect(await catalog.idempotency.claim(claimOf('new', LATER), NOW)).toMatchObject({
    resourceId: 'old',
    isNew: false,
  });
  const claim = await catalog.idempotency.claim({ ...claimOf('new', LATER), bodyHash: 'h2' }, LATER);
  expect(claim).toEqual({ resourceId: 'new', isSameBody: true, isNew: true });
  expect(await catalog.idempotency.claim(claimOf('third'), LATER)).toMatchObject({
    resourceId: 'new',
    isSameBody: false,
  });
});

test('keys are found by their hash, listed by age, marked when used, and revoked once', async () => {
  const { keys } = await open();
  expect(await keys.any()).toBe(false);
  const key = { hash: 'h1', name: 'ann', role: 'user' as const, created_at: NOW, expires_at: null };
  await keys.insert({ ...key, id: 'key_2' });
  await keys.insert({ ...key, id: 'key_1', hash: 'h2', expires_at: LATER });
  expect(await keys.any()).toBe(true);
  expect((await keys.list()).map(({ id }) => id)).toEqual(['key_1', 'key_2']);
  await keys.recordUse('key_2', NOW, NOW);
  await keys.recordUse('key_2', LATER, NOW);
  expect(await keys.findAll(['h1', 'none'])).toEqual([{ ...key, id: 'key_2', last_used_at: NOW, revoked_at: null }]);
  expect(await keys.revoke('key_2', NOW)).toMatchObject({ revoked_at: NOW });
  expect(await keys.revoke('key_2', LATER)).toMatchObject({ revoked_at: NOW });
  expect([await keys.revoke('none', NOW), await keys.findAll(['none'])]).toEqual([undefined, []]);
});

test('numbers are returned as numbers, and texts in byte order', async () => {
  await open();
  const names = ['a', 'B', 'a-b', 'ab', 'é', 'Z', '_', '1', '10', '2', 'z', '😀', '\uffee'];
  for (const name of names) await database.rows.insertInto('specs').values({ hash: name, spec: '{}' }).execute();
  const { rows } = database;
  const ordered = await rows.selectFrom('specs').select('hash').orderBy('hash').execute();
  const byBytes = names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  expect(ordered.map(({ hash }) => hash)).toEqual(byBytes);
  const after = await rows.selectFrom('specs').select('hash').where('hash', '>', 'Z').orderBy('hash').execute();
  expect(after.map(({ hash }) => hash)).toEqual(byBytes.slice(byBytes.indexOf('Z') + 1));
  const { count } = await rows
    .selectFrom('specs')
    .select((eb) => eb.fn.countAll().as('count'))
    .executeTakeFirstOrThrow();
  expect(count).toBe(names.length);
});

test('a mark only increases, whichever process sets it', async () => {
  const [one, other] = [await open(), await open()];
  expect(await one.marks.get('work')).toBeUndefined();
  await one.marks.raise('work', LATER);
  await other.marks.raise('work', NOW);
  expect([await one.marks.get('work'), await other.marks.get('work')]).toEqual([LATER, LATER]);
});

test('a model server that has answered one process is found by others, at that address and under that name', async () => {
  const [one, other] = [await open(), await open()];
  const server = { providerName: 'ollama', baseUrl: 'http://127.0.0.1:11434/v1' };
  expect(await one.modelServers.hasResponded(server)).toBe(false);
  await Promise.all([one.modelServers.record(server, NOW), other.modelServers.record(server, LATER)]);
  const known = [server, { ...server, baseUrl: undefined }, { ...server, providerName: 'own' }];
  expect(await Promise.all(known.map((one) => other.modelServers.hasResponded(one)))).toEqual([true, false, false]);
});

test('unarchived turns are listed, the oldest first, without those that are only requested', async () => {
  const catalog = await open();
  const accept = (turnId: string, sequence: number, createdAt: string) =>
    catalog.turns.accept({ turnId, sessionId: 's', previousTurnId: null, sequence, createdAt, title: null });
  await insertSession(catalog, 's');
  await accept('later', 3, LATER);
  await accept('first', 1, NOW);
  await accept('archived', 2, NOW);
  const end = ended[0]!.record;
  await catalog.archive.add('archived', [{ ordinal: 1, record: end }], { state: 'ended' });
  await catalog.turns.request({ id: 'asked', session_id: 's', created_at: NOW });
  expect((await catalog.turns.unarchived()).map(({ id }) => id)).toEqual(['first', 'later']);
  const before = async (turn: { id: string; sequence: number; previous_turn_id: string | null }) =>
    (await catalog.turns.unarchivedBefore({ session_id: 's', ...turn })).map(({ id }) => id).toSorted();
  expect(await before({ id: 'b', sequence: 5, previous_turn_id: 'later' })).toEqual(['asked', 'first', 'later']);
  expect(await before({ id: 'a', sequence: 5, previous_turn_id: 'asked' })).toEqual(['asked', 'first', 'later']);
  expect(await before({ id: 'a', sequence: 2, previous_turn_id: null })).toEqual(['first']);
});

test('records with all kinds of text are read from the archive unchanged', async () => {
  const catalog = await open();
  const entries: LogEntry[] = Array.from({ length: 1_201 }, (_, i) => ({
    ordinal: i + 1,
    record: { kind: 'tool.result', id: `evt_${i}`, at: NOW, content: 'a\0b\ud800c😀' } as unknown as LogEntry['record'],
  }));
  await insertSession(catalog, 's');
  await catalog.turns.request({ id: 't', session_id: 's', created_at: NOW });
  await catalog.archive.add('t', entries, { state: 'ended' });
  expect(await catalog.archive.read('t', 1, 2_000)).toEqual(entries);
  expect(await catalog.archive.read('t', Number.MAX_SAFE_INTEGER, 10)).toEqual([]);
  expect(await catalog.turns.get('t')).toMatchObject({ archived: 1, archived_through: 1_201 });
});

test('a record of the archive that is damaged is a placeholder, and is logged once; the others are as they were', async () => {
  const lines: Record<string, unknown>[] = [];
  const logged = pino({ level: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line) as never) });
  const [k1, k2] = [randomBytes(32), randomBytes(32)].map((key, i) => ({ id: `k${i + 1}`, key }));
  const reopened = async (...keys: (typeof k1)[]) => {
    const { database: settings } = loadConfig({ DATABASE_URL: database.url });
    const opened = await Catalog.open(settings, logged, new Cipher(keys.flatMap((key) => key ?? [])));
    catalogs.push(opened);
    return opened;
  };
  const catalog = await reopened(k1);
  await insertSession(catalog, 'ses_1');
  const [first, second] = ['turn_01kac6f1zy5c3n8s7k4b2g9d6w', 'turn_01kac6f1zy5c3n8s7k4b2g9d6x'] as const;
  const end = { status: 'done' as const, output: null, requiredActions: [] };
  const done: Omit<TurnDone, 'id'> = { kind: 'turn.done', at: NOW, ...NO_TOTALS, end, waitedMs: 0, workedMs: 0 };
  const said = (i: number) => modelMessage({ id: `msg_${i}`, at: NOW, content: `message ${i}` });
  for (const [turnId, previousTurnId] of [
    [first, null],
    [second, first],
  ] as const) {
    const start = turnStart({
      turnId,
      sessionId: 'ses_1',
      previousTurnId,
      sequence: previousTurnId ? 2 : 1,
      createdAt: NOW,
    });
    await catalog.turns.accept(start);
    const records = [turnCreated(start), said(2), said(3), done];
    const entries = records.map((record, i) => ({
      ordinal: i + 1,
      record: { id: `evt_${i}`, ...record } as LogEntry['record'],
    }));
    await catalog.archive.add(turnId, entries, { state: 'ended' });
  }
  const damage = (turnId: string, ordinal: number, record: string) =>
    database.rows
      .updateTable('archive')
      .set({ record })
      .where('turn_id', '=', turnId)
      .where('ordinal', '=', ordinal)
      .execute();
  await damage(first, 1, '{"kind":"turn.cre');
  await damage(first, 2, '');
  const [moved] = await database.rows
    .selectFrom('archive')
    .selectAll()
    .where('turn_id', '=', second)
    .where('ordinal', '=', 3)
    .execute();
  await damage(first, 4, moved?.record ?? '');

  const parts = { catalog, history: {} as TurnHistory, blobs: {} as BlobStore, losses };
  const logs = new TurnLogReader(parts);
  const entries = await logs.all(first);
  expect(entries.map(({ record }) => record)).toMatchObject([
    { kind: 'turn.created', sessionId: 'ses_1', previousTurnId: null, createdBy: { subjectId: 'ann' }, at: NOW },
    { kind: 'model.message', content: LOST_RECORD, threadId: 'main' },
    said(3),
    { kind: 'turn.done', end: { status: 'error', message: LOST_RECORD } },
  ]);
  expect(await logs.firstAndLast(first)).toMatchObject({ created: { turnId: first }, done: { kind: 'turn.done' } });
  const next = { ...turnStart({ turnId: 'next', sessionId: 'ses_1', previousTurnId: second }), after: null };
  const records = await new Conversations({ ...parts, logs }).beginning(next, new AbortController().signal);
  expect(records.flatMap((record) => (record.kind === 'model.message' ? record.content : []))).toEqual([
    LOST_RECORD,
    'message 3',
    'message 2',
    'message 3',
  ]);
  expect(lines.map(({ sessionId, turnId, recordId }) => [sessionId, turnId, recordId])).toEqual(
    entries.flatMap(({ ordinal, record }) => (ordinal === 3 ? [] : [['ses_1', first, record.id]])),
  );

  // A missing key may be configured again: nothing replaces what it encrypts.
  const lacking = await reopened(k2);
  await expect(lacking.archive.read(second, 1, 10)).rejects.toThrow('"k1", which EVERTURN_ENCRYPTION_KEYS');
  await expect(lacking.archive.readAll([second])).rejects.toThrow(EncryptionKeyMissing);
});

test('a chain is complete whether its turns are in the archive, only in the index, or only requested; a missing one is left out', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  const ids = ['archived_1', 'indexed', 'archived_2', 'asked', 'gone', 'archived_3', 'archived_4', 'last'];
  const starts = ids.map((turnId, n) =>
    turnStart({ turnId, sessionId: 's', previousTurnId: ids[n - 1] ?? null, sequence: n + 1, createdAt: NOW }),
  );
  for (const start of starts) {
    const { turnId } = start;
    if (turnId === 'asked') await catalog.turns.request({ id: turnId, session_id: 's', created_at: NOW });
    else await catalog.turns.accept(start);
    if (!turnId.startsWith('archived')) continue;
    await catalog.archive.add(turnId, [{ ordinal: 1, record: turnCreated(start) }], { state: 'ended' });
  }
  const fake: Pick<TurnHistory, 'read' | 'isStarting'> = {
    isStarting: () => Promise.resolve(false),
    async *read(turnId) {
      const start = starts.find((one) => one.turnId === turnId && turnId !== 'gone');
      if (!start) throw Object.assign(new Error('no such workflow'), { code: 5, details: '', metadata: {} });
      const close = { how: 'completed' as const, result: { status: 'done' as const, pending: [] } };
      const events: HistoryEvent[] = [
        { type: 'started', at: NOW, start },
        { type: 'closed', at: NOW, close },
      ];
      yield await Promise.resolve({ events, lastEventId: 2 });
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- no more is asked of the history, and all is small
  const parts = { catalog, history: fake, blobs: {}, losses } as unknown as ConstructorParameters<
    typeof TurnLogReader
  >[0];
  const conversations = new Conversations({ ...parts, logs: new TurnLogReader(parts) });
  const next = { ...turnStart({ turnId: 'next', sessionId: 's', previousTurnId: 'last' }), after: null };
  const records = await conversations.beginning(next, new AbortController().signal);
  const turns = records.flatMap((record) => (record.kind === 'turn.created' ? [record.turnId] : []));
  expect(turns).toEqual([...ids.filter((id) => id !== 'gone'), 'next']);
});

/** Counts the calls of a table's methods, each of which is a query. */
function counted<T extends object>(table: T, onQuery: () => void): T {
  return new Proxy(table, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]): unknown => {
        onQuery();
        return Reflect.apply(value, target, args);
      };
    },
  });
}

test('the conversation of a chain of 600 turns is read completely, many turns at a time', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  const idOf = (n: number): string => `turn_${String(n).padStart(3, '0')}`;
  // One of them is long, and its log is read in several parts.
  const length = (n: number): number => (n === 300 ? 700 : 3);
  for (let n = 1; n <= 600; n++) {
    const previousTurnId = n === 1 ? null : idOf(n - 1);
    const start = turnStart({ turnId: idOf(n), sessionId: 's', previousTurnId, sequence: n, createdAt: NOW });
    await catalog.turns.accept(start);
    const said = (ordinal: number) => ({ kind: 'tool.result', id: `evt_${n}_${ordinal}`, at: NOW });
    const entries = Array.from({ length: length(n) }, (_, i) => ({
      ordinal: i + 1,
      record: i === 0 ? turnCreated(start) : (said(i + 1) as unknown as LogEntry['record']),
    }));
    await catalog.archive.add(start.turnId, entries, { state: 'ended' });
  }
  let queries = 0;
  const onQuery = (): void => void (queries += 1);
  const watched = { turns: counted(catalog.turns, onQuery), archive: counted(catalog.archive, onQuery) };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- all is in the archive, and small
  const parts = { catalog: watched, history: {}, blobs: {}, losses } as unknown as ConstructorParameters<
    typeof TurnLogReader
  >[0];
  const conversations = new Conversations({ ...parts, logs: new TurnLogReader(parts) });
  const next = { ...turnStart({ turnId: 'turn_601', sessionId: 's', previousTurnId: idOf(600) }), after: null };
  const never = new AbortController().signal;
  const records = await conversations.beginning(next, never);
  expect(records.flatMap((record) => (record.kind === 'turn.created' ? [record.turnId] : []))).toEqual([
    ...Array.from({ length: 600 }, (_, n) => idOf(n + 1)),
    'turn_601',
  ]);
  expect(records).toHaveLength(599 * 3 + 700 + 1);
  expect(queries).toBeLessThan(40);
  // From here on all but the turn that has just ended is cached.
  queries = 0;
  expect(await conversations.beginning(next, never)).toEqual(records);
  expect(queries).toBe(0);
  const other = conversations.beginning({ ...next, sessionId: 'another' }, never);
  await expect(other).rejects.toThrow(/turn_600 .*session another/);
});

test('each of several concurrent archivers of a turn gets the entries that it has added', async () => {
  const [worker, other] = [await open(), await open()];
  const entries: LogEntry[] = [1, 2, 3].map((ordinal) => ({
    ordinal,
    record: { kind: 'tool.result', id: `evt_${ordinal}`, at: NOW } as unknown as LogEntry['record'],
  }));
  await insertSession(worker, 's');
  await worker.turns.accept(turnOf('t'));
  expect(await worker.archive.add('t', entries.slice(0, 2), { state: 'running' })).toEqual(entries.slice(0, 2));
  const added = await Promise.all(
    [worker, other].map((catalog) => persist(() => catalog.archive.add('t', entries, { state: 'ended' }))),
  );
  expect(added.flat()).toEqual(entries.slice(2));
  expect(await worker.archive.add('t', entries.slice(0, 1), { state: 'running' })).toEqual([]);
  expect(await worker.archive.read('t', 1, 10)).toEqual(entries);
  expect(await worker.turns.get('t')).toMatchObject({ archived: 1, archived_through: 3 });
});

test('an unavailable database is a distinct error, which ends when the database is available again', async () => {
  const catalog = await open();
  const bringBack = await database.takeAway();
  const failures = await Promise.all(
    [catalog.check(NOW), catalog.agents.put('a', { model: { name: 'm' } }, NOW)].map((work) =>
      work.then(
        () => 'done',
        (error: unknown) => isCatalogUnavailable(error),
      ),
    ),
  );
  await bringBack();
  expect(failures).toEqual([true, true]);
  // Connections that broke meanwhile may be used first.
  await eventually(() => catalog.check(NOW));
});

const turnOf = (turnId: string) => ({
  turnId,
  sessionId: 's',
  previousTurnId: null,
  sequence: 1,
  createdAt: NOW,
  title: 'x',
});
const ended: LogEntry[] = [
  {
    ordinal: 1,
    record: {
      kind: 'turn.done',
      id: 'evt_1',
      at: NOW,
      end: { status: 'cancelled', reason: 'client-cancelled' },
      ...NO_TOTALS,
      waitedMs: 0,
      workedMs: 0,
    },
  },
];

test('a session has the sums of its archived turns, once each, and no cost if one is unknown', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  const tokens = { ...NO_USAGE, inputTokens: 10 };
  const endOf = (usage: TurnDone['usage']): LogEntry[] => {
    const more = { usage, modelCalls: 2, toolCalls: 3, waitedMs: 5_000_000_000 };
    return ended.map(({ ordinal, record }) => ({ ordinal, record: { ...record, ...more } as TurnDone }));
  };
  const cost = async () => (await catalog.sessions.get('s'))?.cost_in_usd;
  for (const id of ['t', 'u', 'v', 'w']) await catalog.turns.accept(turnOf(id));
  await catalog.archive.add('t', endOf({ ...tokens, costInUsd: 0.25 }), { state: 'ended' });
  await catalog.archive.add('t', endOf({ ...tokens, costInUsd: 0.25 }), { state: 'ended' });
  await catalog.archive.add('u', endOf({ ...tokens, costInUsd: 0.5 }), { state: 'ended' });
  await catalog.archive.add('v', endOf(NO_USAGE), { state: 'ended' });
  expect(await cost()).toBe(0.75);
  await catalog.archive.add('w', endOf(tokens), { state: 'ended' });
  expect(await cost()).toBeNull();
  expect(await catalog.sessions.get('s')).toMatchObject({
    input_tokens: 30,
    output_tokens: 0,
    model_calls: 8,
    tool_calls: 12,
    waited_ms: 20_000_000_000,
  });
});

test('nothing can be added to a deleted session', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  await catalog.turns.accept(turnOf('t'));
  await catalog.idempotency.claim({ ...claimOf('t'), sessionId: 's' }, NOW);
  expect(await catalog.sessions.delete('s', LATER)).toBe(true);
  expect(await catalog.sessions.delete('s', LATER)).toBe(false);
  expect(await catalog.sessions.get('s')).toBe(undefined);
  const filter = { type: 'session/draft' as const };
  expect(await catalog.sessions.list(filter, { order: 'asc', after: undefined, limit: 10 })).toEqual([]);
  expect(await catalog.turns.request({ id: 'u', session_id: 's', created_at: LATER })).toBe(false);
  expect(await catalog.turns.accept(turnOf('u'))).toBe(false);
  expect(await catalog.archive.add('t', ended, { state: 'ended' })).toBe(undefined);
  await catalog.turns.remove('t');
  expect(await catalog.archive.add('t', ended, { state: 'ended' })).toBe(undefined);
  await catalog.sessions.forget('s', { now: LATER, again: undefined });
  expect(await catalog.turns.request({ id: 'u', session_id: 's', created_at: LATER })).toBe(false);
  for (const table of ['turns', 'archive', 'sessions', 'idempotency'] as const) {
    expect(await database.rows.selectFrom(table).selectAll().execute(), table).toEqual([]);
  }
});

test('the secrets of a run exist from the request for its turn until it is archived, lost, withdrawn or deleted', async () => {
  const catalog = await open();
  const request = async (id: string) => {
    await insertSession(catalog, id, 'run');
    await catalog.turns.request({ id: `turn_${id}`, session_id: id, created_at: NOW }, `{"of":"${id}"}`);
    expect(await catalog.runSecrets.get(id)).toBe(`{"of":"${id}"}`);
  };
  const accept = (id: string) => catalog.turns.accept({ ...turnOf(`turn_${id}`), sessionId: id });
  for (const id of ['withdrawn', 'archived', 'lost', 'deleted']) await request(id);
  await accept('archived');
  await catalog.turns.withdraw('turn_archived');
  expect(await catalog.runSecrets.get('archived')).toBeDefined();
  await catalog.archive.add('turn_archived', ended, { state: 'ended' });
  await catalog.turns.withdraw('turn_withdrawn');
  await accept('lost');
  await catalog.turns.remove('turn_lost');
  await catalog.sessions.delete('deleted', LATER);
  const rows = () => database.rows.selectFrom('run_secrets').select('secrets').execute();
  expect(await rows()).toEqual([]);
  // Repetitions of the requests that arrive late.
  await catalog.turns.request({ id: 'turn_archived', session_id: 'archived', created_at: NOW }, '{}');
  await catalog.turns.request({ id: 'turn_deleted', session_id: 'deleted', created_at: NOW }, '{}');
  expect(await rows()).toEqual([]);
  const encrypted = await open(new Cipher([{ id: 'k1', key: randomBytes(32) }]));
  await insertSession(encrypted, 'encrypted', 'run');
  await encrypted.turns.request({ id: 'turn_encrypted', session_id: 'encrypted', created_at: NOW }, '{}');
  expect(await rows()).toEqual([{ secrets: expect.stringMatching(/^sealed:k1:/) }]);
  expect(await encrypted.runSecrets.get('encrypted')).toBe('{}');
});

test('a spec is deleted some time after its last user has changed or is deleted', async () => {
  const catalog = await open();
  const known = async () => {
    const specs = await database.rows.selectFrom('specs').select('spec').execute();
    return specs.map(({ spec }) => (JSON.parse(spec) as AgentSpec).model.name).toSorted();
  };
  const put = (name: string, at = NOW) => catalog.agents.putSpec({ model: { name } }, at);
  const change = async (id: string, name: string) =>
    catalog.sessions.update(id, { updated_at: NOW, spec_hash: await put(name) });
  await insertSession(catalog, 's');
  await insertSession(catalog, 'other');
  await catalog.agents.put('agent', { model: { name: 'published' } }, NOW);
  for (const name of ['published', 'm3', 'm2']) await change('s', name);
  await catalog.agents.delete('agent');
  // A turn may still be running with it.
  await catalog.agents.forgetSpecs(NOW, NOW);
  expect(await known()).toEqual(['m', 'm2', 'm3', 'published']);
  await catalog.agents.forgetSpecs(LATER, LATER);
  expect(await known()).toEqual(['m', 'm2', 'published']);
  await change('other', 'm2');
  await catalog.sessions.delete('s', NOW);
  await catalog.sessions.forget('s', { now: NOW, again: undefined });
  await catalog.agents.forgetSpecs(LATER, LATER);
  expect(await known()).toEqual(['m2', 'published']);
  await catalog.sessions.delete('other', NOW);
  await catalog.sessions.forget('other', { now: NOW, again: undefined });
  // A user that fails before it stores the reference.
  await put('m2', LATER);
  await put('m4', LATER);
  await catalog.agents.forgetSpecs(LATER, LATER);
  expect(await known()).toEqual(['m2', 'm4', 'published']);
  await catalog.agents.forgetSpecs('2026-11-03T10:00:00.000Z', LATER);
  expect(await known()).toEqual(['published']);
});

test('a session that was used after it was found idle is not deleted', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  await catalog.turns.request({ id: 't', session_id: 's', created_at: LATER });
  expect(await catalog.sessions.delete('s', LATER, { idleSince: NOW })).toBe(false);
  expect(await catalog.sessions.delete('s', LATER, { idleSince: LATER })).toBe(true);
});

test('no turn starts while blobs are collected, and no blobs are collected while a turn may start', async () => {
  const [worker, api] = [await open(), await open()];
  await insertSession(worker, 's');
  await worker.turns.accept(turnOf('t'));
  const removed: string[][] = [];
  const sweep = (blobs: string[], during: () => Promise<void> = () => Promise.resolve()) =>
    worker.blobReferences.sweep('s', { blobs, now: LATER, isLast: true }, async (names) => {
      removed.push(names);
      await during();
    });
  await sweep(['a']);
  expect(removed).toEqual([]);
  const blob = 'b'.repeat(64);
  const record = { kind: 'turn.created', at: NOW, files: [{ type: 'file', blob }] } as unknown as LogEntry['record'];
  await worker.archive.add(
    't',
    [
      { ordinal: 1, record },
      { ordinal: 2, record: ended[0]?.record ?? record },
    ],
    { state: 'ended' },
  );
  const order: string[] = [];
  let request: Promise<unknown> | undefined;
  await sweep(['a', blob], async () => {
    let isRefused = false;
    request = persist(
      () => api.turns.request({ id: 'u', session_id: 's', created_at: LATER }),
      () => (isRefused = true),
    ).then(() => order.push('request'));
    await expect.poll(async () => isRefused || order.length > 0 || (await database.hasWaiting())).toBe(true);
    order.push('collected');
  });
  await request;
  expect(order).toEqual(['collected', 'request']);
  expect(removed).toEqual([['a']]);
  await sweep(['a']);
  expect(removed).toEqual([['a']]);
});

test('blobs that are held are kept until their holder needs others', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  const sandbox = { session_id: 's', id: 'sbx', host: 'h', isolation: 'sandbox', opened_by: 'a' } as const;
  await catalog.sandboxes.create(sandbox, new Date(NOW).getTime());
  const swept = async (blobs: string[]): Promise<string[]> => {
    const removed: string[] = [];
    await catalog.blobReferences.sweep('s', { blobs, now: LATER, isLast: false }, (names) => {
      removed.push(...names);
      return Promise.resolve();
    });
    return removed;
  };
  const keep = (held: Record<string, string[]>, host = 'h') =>
    catalog.sandboxes.keepSnapshots({ sessionId: 's', host, snapshots: [] }, new Map(Object.entries(held)));
  expect(await keep({ main: ['a', 'b'], sub: ['b', 'c'] })).toBe(true);
  expect(await swept(['a', 'b', 'c', 'd'])).toEqual(['d']);
  expect(await keep({ main: ['b'] }, 'another host')).toBe(false);
  expect(await keep({ main: ['e'] })).toBe(true);
  expect(await swept(['a', 'b', 'c', 'e'])).toEqual(['a']);
  expect(await catalog.blobReferences.of('s')).toEqual(new Set(['b', 'c', 'e']));
  await catalog.sessions.delete('s', NOW);
  await catalog.sessions.forget('s', { now: NOW, again: undefined });
  expect(await database.rows.selectFrom('held_blobs').selectAll().execute()).toEqual([]);
});

test('a session that is in use at the first page of its blobs is not marked as swept at a later one', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  await catalog.turns.accept(turnOf('t'));
  const deleted: string[] = [];
  const parts = {
    catalog,
    log,
    turnIndex: { reconcileRequests: () => Promise.resolve() },
    blobs: {
      async *list() {
        yield [{ name: 'a', storedAt: 0 }];
        await catalog.archive.add('t', ended, { state: 'ended' });
        yield [{ name: 'b', storedAt: 0 }];
      },
      delete: (_: string, names: string[]) => Promise.resolve(deleted.push(...names)),
    },
  } as unknown as Parameters<typeof collectBlobs>[0];
  const sweep = (now: string) => collectBlobs(parts, { now: new Date(now), stop: new AbortController().signal });
  await sweep('2026-11-09T10:00:00.000Z');
  expect(deleted).toEqual([]);
  expect(await catalog.sessions.get('s')).toMatchObject({ unswept_since: expect.any(String) });
  await catalog.archive.add('t', ended, { state: 'ended' });
  await sweep('2026-11-16T10:00:00.000Z');
  expect(deleted).toEqual(['a', 'b']);
  expect(await catalog.sessions.get('s')).toMatchObject({ unswept_since: null });
});

test('the storage of the sessions of a subject is counted once, and no longer once it is deleted', async () => {
  const [catalog, other] = [await open(), await open()];
  const { storedBytes } = catalog;
  const spec = (characters: number) => catalog.agents.putSpec({ model: { name: 'm'.repeat(characters) } }, NOW);
  await insertSession(catalog, 'registered');
  expect(await storedBytes.of('ann')).toBe(0);
  const draft = { id: 's', type: 'session/draft' as const, agent_name: null, agent_version: null, title: null };
  const owner = { subject_id: 'ann', subject_type: 'user', subject_slug: 'ann', draft_roles: '["user"]' };
  const times = { created_at: NOW, updated_at: NOW };
  await catalog.sessions.insert({ ...draft, ...owner, ...times, spec_hash: await spec(1_000), metadata: '{}' });
  const empty = JSON.stringify({ model: { name: '' } }).length + '{}'.length;
  expect(await storedBytes.of('ann')).toBe(empty + 1_000);
  await catalog.sessions.update('s', { spec_hash: await spec(3_000), draft_roles: '["user"]', updated_at: NOW });
  await catalog.sessions.update('s', { updated_at: LATER });
  expect(await storedBytes.of('ann')).toBe(empty + 3_000);
  const blobs = ['a', 'b'].map((one) => one.repeat(64));
  const put = (name: string, by: Catalog) => persist(() => by.storedBytes.addBlob('s', name, 500));
  await Promise.all([catalog, other, catalog, other].flatMap((by) => blobs.map((name) => put(name, by))));
  expect(await storedBytes.of('ann')).toBe(empty + 4_000);
  const sums = () => database.rows.selectFrom('subject_stored_bytes').selectAll().orderBy('subject_id').execute();
  const add = (by: Catalog) => persist(() => by.storedBytes.addChanges(new AbortController().signal));
  const addChanges = () => Promise.all([catalog, other].map(add));
  await addChanges();
  expect(await sums()).toEqual(['', 'ann'].map((subject_id) => ({ subject_id, bytes: empty + 4_000 })));
  expect(await storedBytes.of('ann')).toBe(empty + 4_000);
  await catalog.turns.accept(turnOf('t'));
  await catalog.archive.add('t', ended, { state: 'ended' });
  await catalog.archive.add('t', ended, { state: 'ended' });
  const archived = JSON.stringify(ended[0]?.record).length;
  expect(await storedBytes.of('ann')).toBe(empty + 4_000 + archived);
  await catalog.blobReferences.sweep('s', { blobs, now: LATER, isLast: true }, () => Promise.resolve());
  expect(await storedBytes.of('ann')).toBe(empty + 3_000 + archived);
  await storedBytes.addBlob('registered', 'c', 7);
  expect(await storedBytes.totals()).toEqual({
    all: empty + 3_007 + archived,
    largestSubject: empty + 3_007 + archived,
  });
  await catalog.sessions.delete('s', NOW);
  // Its turn is still at work.
  await put('d'.repeat(64), catalog);
  expect([await storedBytes.of('ann'), await storedBytes.of('bob')]).toEqual([7, 0]);
  await addChanges();
  expect([await storedBytes.of('ann'), await storedBytes.totals()]).toEqual([7, { all: 7, largestSubject: 7 }]);
  await catalog.sessions.forget('s', { now: NOW, again: undefined });
  const rows = await database.rows.selectFrom('stored_blobs').select('session_id').execute();
  expect(rows).toEqual([{ session_id: 'registered' }]);
  await storedBytes.addBlob('registered', 'e', 5);
  expect(await storedBytes.totals()).toEqual({ all: 12, largestSubject: 12 });
  await catalog.sessions.delete('registered', NOW);
  await addChanges();
  expect(await sums()).toEqual([]);
});

test('the storage of subjects from before their sums were kept is in the sums', async () => {
  await migrateThrough('0007-states');
  await sql`insert into specs (hash, spec) values ('h', '{}')`.execute(database.rows);
  const sessions = [
    ['a', 'ann', 5],
    ['b', 'ann', 7],
    ['c', 'bob', 0],
  ] as const;
  const times = { created_at: NOW, updated_at: NOW, active_at: NOW };
  for (const [id, subject, stored_bytes] of sessions) {
    const owner = { subject_id: subject, subject_type: 'user', subject_slug: subject };
    const row = { id, type: 'session' as const, spec_hash: 'h', ...owner, ...times, stored_bytes };
    await database.rows.insertInto('sessions').values(row).execute();
  }
  const { storedBytes } = await open();
  expect([await storedBytes.of('ann'), await storedBytes.of('bob')]).toEqual([12, 0]);
  await storedBytes.addBlob('c', 'd', 3);
  expect(await storedBytes.totals()).toEqual({ all: 15, largestSubject: 12 });
  // Also if an operator deletes the row.
  await database.rows.deleteFrom('sessions').where('id', '=', 'b').execute();
  expect(await storedBytes.of('ann')).toBe(5);
});

test('the archive notes the blobs that its records refer to, and none that a text mentions', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  await catalog.turns.request({ id: 't', session_id: 's', created_at: NOW });
  const [text, file] = ['1'.repeat(64), '2'.repeat(64)];
  const mention = `not {"blob":"${'3'.repeat(64)}"} itself`;
  const content = [{ $blob: text }, { type: 'file', name: 'x', blob: file }, mention];
  const record = { kind: 'tool.result', id: 'evt_1', at: NOW, content } as unknown as LogEntry['record'];
  await catalog.archive.add(
    't',
    [1, 2].map((ordinal) => ({ ordinal, record })),
    { state: 'ended' },
  );
  expect([...(await catalog.blobReferences.of('s'))].toSorted()).toEqual([text, file]);
  expect(await catalog.sessions.get('s')).toMatchObject({ active_at: NOW, unswept_since: NOW, deleted_at: null });
});

test('model calls that begin at once in several processes count before they are made, up to the limit', async () => {
  const processes = [await open(), await open()];
  const subject = { scope: 'subject' as const, id: 'ann', period: '2026-11-02', limit: { steps: 5, usd: 1 } };
  const session = { scope: 'session' as const, id: 'ses_1', period: '', limit: { tokens: 100 } };
  const idle = { turnId: 't', workedMs: 0 };
  const begin = (i: number) => persist(() => processes[i % 2]!.spending.begin([session, subject], idle));
  const reports = await Promise.all(Array.from({ length: 12 }, (_, i) => begin(i)));
  expect(reports.filter((report) => report === undefined)).toHaveLength(5);
  const [{ spending }] = processes as [Catalog, Catalog];
  // A call that is refused for one of its budgets counts in none.
  expect((await spending.report(session)).spent).toEqual({ tokens: 0, usd: 0, steps: 5, seconds: 0 });
  const reached = { scope: 'subject', limit: { steps: 5, usd: 1 }, spent: { tokens: 0, usd: 0, steps: 5, seconds: 0 } };
  expect(reports.find((report) => report !== undefined)).toEqual(reached);
  expect(await spending.begin([subject], idle, { isRetry: true })).toBeUndefined();
  expect((await spending.raise(subject, { steps: 7 })).limit).toEqual({ steps: 7, usd: 1 });
  expect(await spending.begin([session, subject], idle)).toBeUndefined();
  await spending.settle([session, subject], idle, { tokens: 100, usd: 0.5 });
  expect(await spending.begin([session, subject], idle)).toMatchObject({ scope: 'session', spent: { tokens: 100 } });
  // The next period begins empty, with the limits of the setting; what began before it does not count in it.
  const next = { ...subject, period: '2026-11-03' };
  expect(await spending.report(next)).toEqual({ ...reached, spent: { tokens: 0, usd: 0, steps: 0, seconds: 0 } });
  await spending.begin([next], idle);
  await spending.settle([subject], idle, { tokens: 1, usd: 1 });
  expect(await spending.report(next)).toEqual({ ...reached, spent: { tokens: 0, usd: 0, steps: 1, seconds: 0 } });
});

const NOTHING = { tokens: 0, usd: 0 };

test('the time for which a turn works counts once: when it calls models, and when its end is archived', async () => {
  const [catalog, other] = [await open(), await open()];
  const { spending } = catalog;
  await insertSession(catalog, 's');
  for (const id of ['t', 'u']) await catalog.turns.accept(turnOf(id));
  const session = { scope: 'session' as const, id: 's', period: '', limit: { seconds: 10 } };
  const subject = { ...subjectAccount('ann', 'day', NOW), limit: {} };
  const both = [session, subject];
  const spent = async () => Promise.all(both.map(async (account) => (await spending.report(account)).spent.seconds));
  const after = (seconds: number, turnId = 't') => ({ turnId, workedMs: seconds * 1000 });
  const end = (seconds: number, turnId = 't', at = NOW) => {
    const entries = ended.map(({ ordinal, record }) => ({
      ordinal,
      record: { ...record, at, workedMs: seconds * 1000 } as TurnDone,
    }));
    return persist(() => catalog.archive.add(turnId, entries, { state: 'ended' }));
  };
  await spending.begin(both, after(0));
  // Two threads of the turn, one of them by a clock that is late.
  await Promise.all([
    persist(() => spending.settle(both, after(4), NOTHING)),
    persist(() => other.spending.begin(both, after(3))),
  ]);
  expect(await spent()).toEqual([4, 4]);
  await end(9);
  await end(9);
  await spending.begin(both, after(9));
  expect(await spent()).toEqual([9, 9]);
  // The call that is refused is not counted, but the time is.
  expect(await spending.begin(both, after(2, 'u'))).toMatchObject({
    scope: 'session',
    spent: { seconds: 11, steps: 3 },
  });
  expect(await spent()).toEqual([11, 11]);
  // It ends when another day has begun: what it has worked since its last call does not count in the one before.
  await end(5, 'u', '2999-01-01T00:00:00.000Z');
  expect(await spent()).toEqual([14, 11]);
  await catalog.sessions.delete('s', LATER);
  await catalog.sessions.forget('s', { now: LATER, again: undefined });
  expect(await spent()).toEqual([0, 11]);
});

test('a session of a run may wait for a person while its turn is open, and others only where an action says so', async () => {
  const catalog = await open();
  await insertSession(catalog, 's');
  await insertSession(catalog, 'run', 'run');
  await insertSession(catalog, 'delegate', 'run/delegate');
  for (const id of ['s', 'run', 'delegate'])
    await catalog.turns.request({ id: `turn_${id}`, session_id: id, created_at: NOW });
  const areAwaited = (...ids: string[]) => catalog.actions.isAnyPending(ids);
  expect([await areAwaited('s'), await areAwaited('s', 'run'), await areAwaited('delegate')]).toEqual([
    false,
    true,
    true,
  ]);
  await catalog.turns.withdraw('turn_run');
  expect(await areAwaited('s', 'run')).toBe(false);
});
