import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { CompiledQuery, Kysely } from 'kysely';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { usageFor } from '../features/agent-sessions/slot-holders.ts';
import { NO_ENCRYPTION } from '../encryption/cipher.ts';
import { Catalog } from '../features/catalog.ts';
import { dialectOf, type Database } from './database.ts';
import { prepareDatabase } from './migrate.ts';
import type { Tables } from './schema.ts';
import type { SessionFilter } from './sessions.ts';

const log = pino({ level: 'silent' });

/** A catalog that records its queries and returns SQLite's plan for each. */
async function openCatalog() {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-catalog-'));
  const database: Database = { kind: 'sqlite', file: path.join(folder, 'catalog.db'), sync: 'normal' };
  await prepareDatabase(database, log);
  const queries: CompiledQuery[] = [];
  const db = new Kysely<Tables>({
    dialect: dialectOf(database, log),
    log: ({ query }) => void (query.sql.startsWith('select') && queries.push(query)),
  });
  onTestFinished(async () => {
    await db.destroy();
    await rm(folder, { recursive: true, force: true });
  });
  const plans = async (read: () => Promise<unknown>): Promise<string[][]> => {
    queries.splice(0);
    await read();
    return Promise.all(
      queries.splice(0).map(async ({ sql, parameters }) => {
        const { rows } = await db.executeQuery<{ detail: string }>(
          CompiledQuery.raw(`explain query plan ${sql}`, [...parameters]),
        );
        return rows.map(({ detail }) => detail);
      }),
    );
  };
  const catalog = new Catalog({ db, kind: database.kind, schema: [], cipher: NO_ENCRYPTION, log });
  return { db, catalog, plans };
}

test('each list of sessions is read from one index in its order, without rows beyond the page', async () => {
  const { catalog, plans } = await openCatalog();
  const { sessions } = catalog;
  const after = { createdAt: '2026-11-01T00:00:00.000Z', id: 'ses_1' };
  const lists: [Omit<SessionFilter, 'type'>, string][] = [
    [{}, 'sessions_by_type (type=?'],
    [{ agentName: 'a' }, 'sessions_by_agent (type=? AND agent_name=?'],
    [{ subjectSlug: 'ann' }, 'sessions_by_slug (type=? AND subject_slug=?'],
    [{ subjectId: 'ann' }, 'sessions_by_subject (type=? AND subject_id=?'],
    [{ subjectId: 'ann', agentName: 'a' }, 'sessions_by_subject_and_agent (type=? AND subject_id=? AND agent_name=?'],
  ];
  for (const [filter, index] of lists) {
    for (const order of ['asc', 'desc'] as const) {
      const time = after.createdAt;
      for (const window of [{}, { from: time }, { to: time }, { from: time, to: time }]) {
        for (const position of [undefined, after]) {
          const page = { order, after: position, limit: 11 };
          const plan = await plans(() => sessions.list({ ...filter, ...window, type: 'session' }, page));
          const isBounded = position !== undefined || 'from' in window || 'to' in window;
          expect(plan.length).toBe(1);
          expect(plan[0]?.length, String(plan)).toBe(1);
          expect(plan[0]?.[0]).toContain(`USING INDEX ${index}${isBounded ? ' AND ' : ')'}`);
        }
      }
    }
  }
  const [one] = await plans(() => sessions.list({ id: 'ses_1', type: 'session' }, { order: 'asc', after, limit: 1 }));
  expect(one?.[0]).toContain('(id=?)');
});

test('the queries of housekeeping use indexes and read only rows that are due', async () => {
  const { catalog, plans } = await openCatalog();
  const due = await plans(() => catalog.sessions.toRemove('2026', { removalAt: '2025', id: 'ses_1' }, 100));
  expect(due).toEqual([[expect.stringContaining('USING COVERING INDEX sessions_to_remove')]]);
  const idle = await plans(() => catalog.retention.idle({ days: 7, before: '2026' }, 100));
  expect(idle.length).toBe(3);
  for (const plan of idle) {
    expect(
      plan.filter((step) => step.startsWith('SCAN') || step.includes('TEMP')),
      String(plan),
    ).toEqual([]);
    expect(plan.find((step) => step.includes(' sessions '))).toMatch(/ AND active_at<\?\)/);
  }
});

test('the sessions with a slot and those that wait for one are found without a scan', async () => {
  const { db, plans } = await openCatalog();
  const uses = await plans(() => usageFor(db, 'ann', { limit: 1, perSubject: 1, now: new Date(0) }));
  expect(uses.length).toBe(2);
  for (const step of uses.flat().filter((one) => / sessions /.test(one))) expect(step).toMatch(/^SEARCH .*\(id=\?\)/);
});

test('the sum that a subject stores is read by its key', async () => {
  const { catalog, plans } = await openCatalog();
  const [steps = []] = await plans(() => catalog.storedBytes.of('ann'));
  for (const table of ['subject_stored_bytes', 'stored_bytes_changes']) {
    expect(steps).toContainEqual(
      expect.stringMatching(new RegExp(`SEARCH ${table} USING .*INDEX .*\\(subject_id=\\?`)),
    );
  }
});
