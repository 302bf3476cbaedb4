import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { randomBytes, randomUUID } from 'node:crypto';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import type { NewSchedule } from '../../src/features/schedules/schedule-rows.ts';
import { loadConfig } from '../../src/config.ts';
import type { Role } from '../../src/core/subject.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';
import { find, readTables } from '../support/raw-stores.ts';

const NOW = '2026-11-02T10:00:00.000Z';
const LATER = '2026-11-02T11:00:00.000Z';
const LIMITS = { perSubject: 2, total: 3 };

let folder: string;
let database: TestDatabase;
let catalog: Catalog;
let other: Catalog;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-catalog-'));
  database = await createTestDatabase(folder);
  const cipher = new Cipher([{ id: 'k', key: randomBytes(32) }]);
  const open = () =>
    Catalog.open(loadConfig({ DATABASE_URL: database.url }).database, pino({ level: 'silent' }), cipher);
  catalog = await open();
  other = await open();
});
afterEach(async () => {
  await catalog.close();
  await other.close();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

function schedule(more: Partial<NewSchedule> = {}): NewSchedule {
  return {
    id: randomUUID(),
    name: 'a secret name',
    description: 'a secret description',
    request: '{"messages":"a secret request"}',
    cron: '0 9 * * *',
    timezone: 'UTC',
    repeats: null,
    subject_id: 'ann',
    subject_type: 'user',
    subject_slug: 'ann',
    roles: ['user'],
    created_at: NOW,
    updated_at: NOW,
    checked_at: NOW,
    ...more,
  };
}

async function inserted(more: Partial<NewSchedule> = {}): Promise<string> {
  const given = schedule(more);
  expect(await catalog.schedules.insert(given, LIMITS)).toBe(true);
  return given.id;
}

const note = (sessions: number) => `a secret note about ${sessions}`;

function run(scheduleId: string, more: object = {}) {
  return {
    id: randomUUID(),
    schedule_id: scheduleId,
    status: 'created' as const,
    scheduled_for: NOW,
    session_id: 'ses_1',
    error: null,
    triggered_manually: false,
    created_at: LATER,
    ...more,
  };
}

test('schedules are limited by subject and in all', async () => {
  const first = await inserted();
  await inserted();
  expect(await catalog.schedules.insert(schedule(), LIMITS)).toBe(false);
  await inserted({ subject_id: 'bob' });
  expect(await catalog.schedules.insert(schedule({ subject_id: 'bob' }), LIMITS)).toBe(false);
  expect(await catalog.schedules.delete(first, NOW)).toBe(true);
  await inserted();
  const page = { order: 'asc', offset: 1, limit: 1 } as const;
  const { items, total } = await catalog.schedules.list({ ...page, subjectId: undefined });
  expect([items.length, total]).toEqual([1, 3]);
  expect(await catalog.schedules.list({ ...page, subjectId: 'bob' })).toEqual({ items: [], total: 1 });
});

test('one of two runs that find the same last session claims', async () => {
  const id = await inserted();
  const claims = (instead: string | null) =>
    Promise.all([
      catalog.schedules.claim(id, { sessionId: 'ses_a', instead, now: NOW }),
      other.schedules.claim(id, { sessionId: 'ses_b', instead, now: NOW }),
    ]);
  expect((await claims(null)).filter(Boolean)).toHaveLength(1);
  const { last_session_id: last = null } = (await catalog.schedules.get(id)) ?? {};
  expect(['ses_a', 'ses_b']).toContain(last);
  await catalog.schedules.claim(id, { sessionId: 'ses_1', instead: last, now: NOW });
  expect((await claims('ses_1')).filter(Boolean)).toHaveLength(1);
});

test('a run is recorded once; one without a session ends its claim; the last of the repeats pauses', async () => {
  const id = await inserted({ repeats: 2 });
  await catalog.schedules.claim(id, { sessionId: 'ses_1', instead: null, now: NOW });
  const first = run(id);
  expect(await catalog.scheduleRuns.record(first, { sessionId: 'ses_1', note })).toBe(false);
  expect(await catalog.scheduleRuns.record(first, { sessionId: 'ses_1', note })).toBe(false);
  expect(await catalog.schedules.get(id)).toMatchObject({ sessions_created: 1, last_run_at: LATER, revision: 1 });
  const failed = run(id, { status: 'error', session_id: null, error: 'a secret error' });
  await catalog.scheduleRuns.record(failed, { sessionId: 'ses_2', note });
  expect(await catalog.schedules.get(id)).toMatchObject({ last_session_id: 'ses_1' });
  await catalog.schedules.claim(id, { sessionId: 'ses_3', instead: 'ses_1', now: NOW });
  const later = '2026-11-02T10:00:01.000Z';
  await catalog.scheduleRuns.record(
    { ...failed, id: randomUUID(), scheduled_for: later },
    { sessionId: 'ses_3', note },
  );
  expect(await catalog.schedules.get(id)).toMatchObject({ last_session_id: null, sessions_created: 1, paused: false });
  expect(await catalog.scheduleRuns.record(run(id), { sessionId: 'ses_4', note })).toBe(true);
  const done = { sessions_created: 2, paused: true, pause_note: 'a secret note about 2', revision: 2 };
  expect(await catalog.schedules.get(id)).toMatchObject(done);
  const { items, total } = await catalog.scheduleRuns.list(id, { order: 'desc', offset: 0, limit: 1 });
  expect([items[0]?.error, total]).toEqual(['a secret error', 4]);
  expect(find('secret', await readTables(database.rows))).toEqual([]);
});

test('the runs of a schedule are kept up to a number, and deleted with it', async () => {
  const id = await inserted();
  const at = (second: number) => new Date(Date.parse(NOW) + second * 1_000).toISOString();
  for (let i = 0; i < 1_005; i++) {
    await catalog.scheduleRuns.record(run(id, { scheduled_for: at(i) }), { sessionId: 'ses_1', note });
  }
  const { items, total } = await catalog.scheduleRuns.list(id, { order: 'asc', offset: 0, limit: 1 });
  expect([items[0]?.scheduled_for, total]).toEqual([at(5), 1_000]);
  await catalog.schedules.remove(id);
  expect(await catalog.schedules.find(id)).toBeDefined();
  await catalog.schedules.delete(id, NOW);
  expect(await catalog.scheduleRuns.record(run(id), { sessionId: 'ses_1', note })).toBe(false);
  await catalog.schedules.remove(id);
  expect(await database.rows.selectFrom('schedule_runs').selectAll().execute()).toEqual([]);
});

test('a schedule that Temporal may lack is found until it is synced, and again after an hour', async () => {
  const id = await inserted();
  const { schedules } = catalog;
  expect(await schedules.toSync(NOW, 10)).toEqual([id]);
  await schedules.change(id, { paused: true, updated_at: LATER });
  // Another revision by now.
  expect(await schedules.synced(id, 1, LATER)).toBe(false);
  expect(await schedules.synced(id, 2, LATER)).toBe(true);
  expect(await schedules.toSync(LATER, 10)).toEqual([]);
  expect(await schedules.toSync('2026-11-02T11:00:00.001Z', 10)).toEqual([id]);
  await schedules.delete(id, LATER);
  expect(await schedules.synced(id, 2, LATER)).toBe(false);
  expect(await schedules.toSync(LATER, 10)).toEqual([id]);
});

test('the newest token of a subject counts, whichever is recorded last', async () => {
  const record = (roles: Role[], seconds: number) =>
    catalog.subjectRoles.record({ subjectId: 'bearer', roles, issuedAt: `2026-01-01T00:00:0${seconds}.000Z` });
  expect(await catalog.subjectRoles.get('bearer')).toBeUndefined();
  await record(['admin'], 1);
  await record(['user'], 3);
  await record(['admin'], 2);
  expect(await catalog.subjectRoles.get('bearer')).toEqual(['user']);
  await record(['approver', 'user'], 3);
  expect(await catalog.subjectRoles.get('bearer')).toEqual(['approver', 'user']);
});
