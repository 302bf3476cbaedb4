import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import { isCatalogUnavailable } from '../../src/catalog/database.ts';
import type { AcceptedTurn } from '../../src/catalog/turns.ts';
import { loadConfig } from '../../src/config.ts';
import type { LogEntry } from '../../src/core/records/log.ts';
import type { TurnDone } from '../../src/core/records/turn.ts';
import type { SessionState } from '../../src/core/session-state.ts';
import { EncryptionKeyMissing } from '../../src/encryption/cipher.ts';
import { deriveStates } from '../../src/housekeeping/derive-states.ts';
import { NO_TOTALS } from '../../src/core/turn-totals.ts';
import { insertSession } from '../support/insert-session.ts';
import { modelMessage } from '../support/model-message.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

/** The states of turns and sessions that the catalog derives. */

const log = pino({ level: 'silent' });
const NOW = '2026-11-02T10:00:00.000Z';

let folder: string;
let database: TestDatabase;
let catalog: Catalog;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-states-'));
  database = await createTestDatabase(folder);
  catalog = await Catalog.open(loadConfig({ DATABASE_URL: database.url }).database, log);
  await insertSession(catalog, { id: 's', at: NOW });
});
afterEach(async () => {
  await catalog.close();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

const accept = (turnId: string, sequence: number): Promise<boolean> => {
  const turn: AcceptedTurn = { turnId, sessionId: 's', previousTurnId: null, sequence, createdAt: NOW, title: null };
  return catalog.turns.accept(turn);
};

const session = () => catalog.sessions.get('s');

function endAs(end: TurnDone['end'], ordinal = 1): LogEntry[] {
  const times = { waitedMs: 0, workedMs: 0 };
  return [{ ordinal, record: { kind: 'turn.done', id: `evt_${ordinal}`, at: NOW, end, ...NO_TOTALS, ...times } }];
}

const paused: LogEntry[] = [{ ordinal: 1, record: { kind: 'turn.paused', id: 'evt_1', at: NOW, reason: 'action' } }];
const answered = { status: 'done' as const, output: modelMessage({ content: 'Yes.' }), requiredActions: [] };

test('a session has the state of its last turn, and is listed by it', async () => {
  const listed = async (...states: SessionState[]) => {
    const filter = { type: 'session/draft' as const, states };
    const found = await catalog.sessions.list(filter, { order: 'asc', after: undefined, limit: 10 });
    return found.map(({ id }) => id);
  };
  expect(await session()).toMatchObject({ state: 'idle', ended_at: null });
  await accept('t', 1);
  expect(await session()).toMatchObject({ state: 'running' });
  await catalog.archive.add('t', paused, { state: 'waiting_client' });
  expect(await session()).toMatchObject({ state: 'waiting_client' });
  expect(await listed('running', 'waiting_client')).toEqual(['s']);
  expect(await listed('running')).toEqual([]);
  await catalog.archive.add('t', endAs({ status: 'error', message: 'Down.' }, 2), { state: 'ended' });
  expect(await session()).toMatchObject({ state: 'error', ended_at: NOW });
  await accept('u', 2);
  expect(await session()).toMatchObject({ state: 'running', ended_at: null });
  await catalog.archive.add('u', endAs(answered), { state: 'ended' });
  expect(await session()).toMatchObject({ state: 'idle', ended_at: null });
  await catalog.turns.remove('u');
  expect(await session()).toMatchObject({ state: 'error' });
});

test('archived entries do not change a state again, and a repeated acceptance does not begin the turn again', async () => {
  await accept('t', 1);
  await catalog.archive.add('t', paused, { state: 'waiting_person' });
  expect(await catalog.archive.add('t', paused, { state: 'running' })).toEqual([]);
  await accept('t', 1);
  expect(await session()).toMatchObject({ state: 'waiting_person' });
  expect(await catalog.turns.get('t')).toMatchObject({ state: 'waiting_person', state_at: NOW });
});

/** The changes that webhooks get from now on. */
async function changes(): Promise<() => Promise<string[]>> {
  const webhook = { id: 'wh_1', url: 'http://127.0.0.1', secret: 's', created_at: NOW, updated_at: NOW };
  await database.rows
    .insertInto('webhooks')
    .values({ ...webhook, face: 'agents-v2', events: '[]', agent_name: null })
    .execute();
  return async () => {
    const rows = await database.rows.selectFrom('deliveries').select('change').orderBy('sequence').execute();
    return rows.map(({ change }) => {
      const { from, to } = JSON.parse(change ?? '{}');
      return `${from} ${to}`;
    });
  };
}

test('a cancellation is reported once, and after an end that is archived only later', async () => {
  const told = await changes();
  await database.rows
    .insertInto('session_requests')
    .values({ session_id: 's', roles: '[]', idle_timeout_s: 600 })
    .execute();
  await accept('t', 1);
  const at = (seconds: number) => new Date(Date.parse(NOW) + seconds * 1000).toISOString();
  await catalog.sessionSlots.cancel('s', at(1));
  expect(await session()).toMatchObject({ state: 'running' });
  await catalog.archive.add('t', endAs(answered), { state: 'ended' });
  await catalog.sessionSlots.cancel('s', at(2));
  await catalog.sessionSlots.cancel('s', at(3));
  expect(await session()).toMatchObject({ state: 'cancelled', ended_at: at(3) });
  expect(await told()).toEqual(['idle running', 'running idle', 'idle cancelled']);
});

test('the later of two workers that archive a turn has the state that the first has stored', async () => {
  await accept('t', 1);
  const resumed: LogEntry[] = [
    { ordinal: 2, record: { kind: 'turn.resumed', id: 'evt_2', at: NOW, reason: 'action' } },
  ];
  const other = await Catalog.open(loadConfig({ DATABASE_URL: database.url }).database, log);
  // SQLite rejects one of them.
  const persist = async (work: () => Promise<unknown>): Promise<unknown> =>
    work().catch((error: unknown) => {
      if (!isCatalogUnavailable(error)) throw error;
      return persist(work);
    });
  await Promise.all([
    persist(() => catalog.archive.add('t', paused, { state: 'waiting_person' })),
    persist(() => other.archive.add('t', [...paused, ...resumed], { state: 'running' })),
  ]);
  expect(await session()).toMatchObject({ state: 'running' });
  await other.close();
});

test('the end of a turn is reported before the beginning of the next, whichever is stored first', async () => {
  const told = await changes();
  await accept('t', 1);
  await catalog.archive.add('t', paused, { state: 'waiting_person' });
  await accept('u', 2);
  expect(await session()).toMatchObject({ state: 'waiting_person' });
  await catalog.archive.add('t', endAs(answered, 2), { state: 'ended' });
  await catalog.archive.add('u', endAs(answered), { state: 'ended' });
  expect(await told()).toEqual([
    'idle running',
    'running waiting_person',
    'waiting_person idle',
    'idle running',
    'running idle',
  ]);
});

test('a turn whose log cannot be archived does not keep the state of its session', async () => {
  await accept('t', 1);
  await accept('u', 2);
  await catalog.archive.add('u', endAs({ status: 'error', message: 'Down.' }), { state: 'ended' });
  expect(await session()).toMatchObject({ state: 'error' });
  await catalog.archive.add('t', endAs(answered), { state: 'ended' });
  expect(await session()).toMatchObject({ state: 'error' });
});

/** The ends of turns, as their logs have them. */
const ENDS: Record<string, TurnDone['end']> = {
  answered: { status: 'done', output: modelMessage({ content: 'Of the late orders.' }), requiredActions: [] },
  failed: { status: 'error', message: 'Down.' },
};

/** Derives what is not derived, as a sweep does. The keys of the turns in `sealed` are missing. */
async function sweep(sealed: string[] = []): Promise<void> {
  const firstAndLast = (turnId: string) => {
    if (sealed.includes(turnId)) return Promise.reject(new EncryptionKeyMissing('k1'));
    const end = ENDS[turnId.replace('turn_', '')];
    const input = [{ type: 'user.message', content: `Hi from ${turnId}` }];
    return Promise.resolve({ created: { input }, done: end && { at: NOW, end } });
  };
  const runStates = { after: () => Promise.resolve(undefined) };
  const currentRun = () => Promise.resolve({ state: 'waiting_person' });
  await deriveStates(
    { catalog, logs: { firstAndLast, currentRun }, runStates, log } as never,
    new AbortController().signal,
  );
}

test('an older turn that is accepted after a later one does not change the state', async () => {
  await accept('u', 2);
  await catalog.archive.add('u', endAs(answered), { state: 'ended' });
  await accept('t', 1);
  await catalog.archive.add('t', endAs({ status: 'error', message: 'Down.' }), { state: 'ended' });
  expect(await session()).toMatchObject({ state: 'idle' });
});

test('rows of a version without states get them, also those that it writes beside this one', async () => {
  const names = ['answered', 'failed', 'open', 'queued', 'unused'];
  const { rows } = database;
  const known = await rows.selectFrom('sessions').selectAll().executeTakeFirstOrThrow();
  await rows.deleteFrom('sessions').execute();
  for (const name of names)
    await rows
      .insertInto('sessions')
      .values({ ...known, id: name, state: null })
      .execute();
  const turn = (id: string) => ({ id: `turn_${id}`, session_id: id, created_at: NOW });
  const ended = { archived: 1, archived_through: 2 };
  const old = [
    { ...turn('answered'), sequence: 1, ...ended },
    { ...turn('failed'), sequence: 1, ...ended },
    { ...turn('open'), sequence: 1 },
    { ...turn('queued'), queue_number: 1 },
  ];
  for (const row of old) await rows.insertInto('turns').values(row).execute();
  const states = async () => {
    const found = await rows.selectFrom('sessions').select(['id', 'state']).orderBy('id').execute();
    return Object.fromEntries(found.map(({ id, state }) => [id, state]));
  };
  await sweep(['turn_failed']);
  expect(await states()).toEqual({
    answered: 'idle',
    failed: null,
    open: 'waiting_person',
    queued: 'idle',
    unused: 'idle',
  });
  await sweep();
  expect(await states()).toMatchObject({ failed: 'error' });
  const ofTurns = await rows.selectFrom('turns').select(['id', 'state', 'leaves']).orderBy('id').execute();
  expect(ofTurns).toEqual([
    { id: 'turn_answered', state: 'ended', leaves: 'idle' },
    { id: 'turn_failed', state: 'ended', leaves: 'error' },
    { id: 'turn_open', state: 'waiting_person', leaves: null },
    { id: 'turn_queued', state: 'queued', leaves: null },
  ]);
  const listing = { filter: {}, order: 'asc' as const, now: new Date() };
  const listed = await catalog.sessionList.page(listing, { offset: 0, limit: 10 });
  expect(listed.find(({ id }) => id === 'answered')).toMatchObject({
    state: 'idle',
    firstMessage: 'Hi from turn_answered',
    lastAnswer: 'Of the late orders.',
  });
  // A process of the version before archives the end of a turn that this one has seen begin.
  ENDS['open'] = { status: 'cancelled', reason: 'client-cancelled' };
  await rows.updateTable('turns').set({ archived: 1, archived_through: 3 }).where('id', '=', 'turn_open').execute();
  await sweep();
  expect(await states()).toMatchObject({ open: 'cancelled', answered: 'idle' });
});
