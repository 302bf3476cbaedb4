import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import { loadConfig } from '../../src/config.ts';
import type { TurnDone } from '../../src/core/records/turn.ts';
import { NO_TOTALS } from '../../src/core/turn-totals.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

/** The catalog's rows on agents that delegate: the references between specs, and the sessions of delegates. */

const NOW = '2026-11-02T10:00:00.000Z';
const LATER = '2026-11-02T10:00:01.000Z';
/** More than the tests create. */
const LIMIT = 10;

const LAST = '2026-11-02T10:00:02.000Z';

let folder: string;
let database: TestDatabase;
let catalog: Catalog;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-catalog-'));
  database = await createTestDatabase(folder);
  catalog = await Catalog.open(loadConfig({ DATABASE_URL: database.url }).database, pino({ level: 'silent' }));
});
afterEach(async () => {
  await catalog.close();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

async function specs(): Promise<string[]> {
  const rows = await database.rows.selectFrom('specs').select('spec').execute();
  return rows.map(({ spec }) => (JSON.parse(spec) as AgentSpec).model.name).toSorted();
}

const put = (name: string, ...delegates: string[]) =>
  catalog.agents.putSpec(
    { model: { name }, delegates: delegates.map((spec) => ({ name: 'x', description: '', spec })) },
    NOW,
  );

const sessionOf = (id: string, specHash: string) => ({
  id,
  type: 'session/draft' as const,
  agent_name: null,
  agent_version: null,
  spec_hash: specHash,
  draft_roles: '["user"]',
  title: null,
  subject_id: 'ann',
  subject_type: 'user',
  subject_slug: 'ann',
  metadata: null,
  created_at: NOW,
  updated_at: NOW,
});

const delegationOf = (child: string, parent = 'ses_p') => ({
  child_session_id: child,
  parent_session_id: parent,
  parent_turn_id: `turn_of_${parent}`,
  thread_id: 'main',
  tool_call_id: 'call_1',
  agent: 'x',
  depth: 1,
  created_at: NOW,
});

/** Creates the session of a call. */
async function create(
  child: string,
  spec: string,
  { parent = 'ses_p', turnId = `turn_of_${child}`, takesSlot = 1, limit = LIMIT } = {},
) {
  const request = {
    session_id: child,
    request: null,
    agent: null,
    agent_revision: null,
    group_id: null,
    parent_session_id: parent,
    idle_timeout_s: null,
    roles: '["user"]',
    takes_slot: takesSlot,
  };
  const delegation = delegationOf(child, parent);
  const session = sessionOf(child, spec);
  const input = [{ type: 'user.message' as const, content: 'do it' }];
  return catalog.sessionSlots.create(
    { session, request, input, turnId, mayQueue: false, delegation },
    { limit, perSubject: limit, now: new Date(NOW) },
  );
}

/** As if the queue had started it. */
async function accept(sessionId: string): Promise<void> {
  const turn = { turnId: `turn_of_${sessionId}`, sessionId, previousTurnId: null, sequence: 1, createdAt: NOW };
  await catalog.turns.accept({ ...turn, title: null });
}

/** Archives the end of a session's turn. */
async function end(sessionId: string): Promise<void> {
  const done: TurnDone = {
    kind: 'turn.done',
    id: 'evt_1',
    at: NOW,
    end: { status: 'cancelled', reason: 'abandoned' },
    ...NO_TOTALS,
    waitedMs: 0,
    workedMs: 0,
  };
  await catalog.archive.add(`turn_of_${sessionId}`, [{ ordinal: 1, record: done }], { state: 'ended' });
}

test('a spec is kept while another one refers to it that is in use, and deleted some time after', async () => {
  const leaf = await put('leaf');
  const middle = await put('middle', leaf);
  const root = await put('root', middle, leaf);
  expect(await put('root', middle, leaf)).toBe(root);
  await catalog.sessions.insert(sessionOf('ses_p', root));
  await catalog.agents.forgetSpecs(LATER, LATER);
  expect(await specs()).toEqual(['leaf', 'middle', 'root']);
  await catalog.sessions.delete('ses_p', NOW);
  await catalog.sessions.forget('ses_p', { now: NOW, again: undefined });
  await catalog.agents.forgetSpecs(LATER, LATER);
  expect(await specs()).toEqual(['leaf', 'middle']);
  await catalog.agents.forgetSpecs(LAST, LAST);
  expect(await specs()).toEqual(['leaf']);
  await catalog.agents.forgetSpecs('2026-11-02T10:00:03.000Z', LAST);
  expect(await specs()).toEqual([]);
  await expect(put('root', middle)).rejects.toThrow(/foreign key/i);
});

test('the session of a call is created once, by the first attempt, unless the parent was deleted', async () => {
  const spec = await put('x');
  await catalog.sessions.insert(sessionOf('ses_p', spec));
  expect(await create('ses_a', spec)).toBe('slot');
  expect(await create('ses_a', spec, { turnId: 'turn_other' })).toBe('exists');
  expect(await catalog.delegations.get('ses_a')).toMatchObject({ child_turn_id: 'turn_of_ses_a', told: 0 });
  // The queue gives it another turn if the first one was not started in time.
  await catalog.sessionSlots.renew('ses_a', 'turn_of_ses_a', 'turn_later');
  expect(await catalog.delegations.get('ses_a')).toMatchObject({ child_turn_id: 'turn_later' });
  const both = await Promise.all([1, 2].map((n) => create('ses_b', spec, { turnId: `turn_${n}` })));
  expect(both.toSorted()).toEqual(['exists', 'slot']);
  const children = await catalog.delegations.ofSession('ses_p');
  expect(children.map(({ child_session_id: id }) => id)).toEqual(['ses_a', 'ses_b']);
  expect(await catalog.sessions.get('ses_b')).toMatchObject({ subject_id: 'ann', draft_roles: '["user"]' });
  await catalog.sessions.delete('ses_p', NOW);
  expect(await create('ses_c', spec)).toBe('no_parent');
  expect(await catalog.sessions.get('ses_c')).toBeUndefined();
});

test('the session of a call needs a slot, also to begin again, unless the parent needs none', async () => {
  const spec = await put('x');
  await catalog.sessions.insert(sessionOf('ses_p', spec));
  const none = { limit: 0, perSubject: 0, now: new Date(NOW) };
  expect(await create('ses_full', spec, none)).toBe('full');
  expect(await catalog.sessions.get('ses_full')).toBeUndefined();
  expect(await create('ses_free', spec, { ...none, takesSlot: 0 })).toBe('slot');
  expect(await create('ses_taken', spec)).toBe('slot');
  expect(await catalog.sessionSlots.usage('ann', none)).toEqual({ active: 1, queued: 0, available: 0 });
  for (const [id, placement] of [
    ['ses_free', 'slot'],
    ['ses_taken', 'full'],
  ] as const) {
    await catalog.sessionSlots.cancel(id, NOW);
    const revived = { sessionId: id, turnId: `turn_2_of_${id}`, request: { requestId: 'req_2', input: [] } };
    expect([id, await catalog.sessionSlots.revive(revived, none)]).toEqual([id, placement]);
  }
});

test('a delegation is to be settled from the end of the child or parent until the parent is notified', async () => {
  const spec = await put('x');
  for (const parent of ['ses_p', 'ses_q']) {
    await catalog.sessions.insert(sessionOf(parent, spec));
    await accept(parent);
  }
  const children = ['ses_runs', 'ses_ended', 'ses_deleted', 'ses_unstarted'];
  for (const child of children) await create(child, spec);
  await create('ses_orphan', spec, { parent: 'ses_q' });
  for (const child of ['ses_runs', 'ses_ended', 'ses_deleted', 'ses_orphan']) await accept(child);
  const due = async () => (await catalog.delegations.toSettle(10)).map(({ child_session_id: id }) => id).toSorted();
  expect(await due()).toEqual([]);
  await end('ses_ended');
  await end('ses_q');
  await catalog.sessions.delete('ses_deleted', NOW);
  expect(await due()).toEqual(['ses_deleted', 'ses_ended', 'ses_orphan']);
  // It is to be started, until it is cancelled or rejected.
  await catalog.sessionSlots.cancel('ses_unstarted', NOW);
  expect(await due()).toEqual(['ses_deleted', 'ses_ended', 'ses_orphan', 'ses_unstarted']);
  expect((await catalog.delegations.unnotifiedBy('turn_of_ses_p')).length).toBe(4);
  for (const child of ['ses_ended', 'ses_deleted', 'ses_unstarted']) await catalog.delegations.setNotified(child);
  expect(await due()).toEqual(['ses_orphan']);
  expect((await catalog.delegations.unnotifiedBy('turn_of_ses_p')).length).toBe(1);
  expect(await catalog.delegations.unnotifiedOf('turn_of_ses_ended')).toEqual([]);
});
