import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fc } from '../../support/fast-check.ts';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Catalog } from '../../../src/features/catalog.ts';
import type { Capacity } from '../../../src/features/agent-sessions/slot-holders.ts';
import { loadConfig } from '../../../src/config.ts';
import type { TurnDone } from '../../../src/core/records/turn.ts';
import { NO_TOTALS } from '../../../src/core/turn-totals.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { SEED } from '../../support/seed.ts';
import { createTestDatabase, type TestDatabase } from '../../support/test-database.ts';

/** The slots and the queue in the catalog, with random steps of several processes at once. */

const LIMIT = 3;
const PER_SUBJECT = 2;
const START = Date.parse('2026-11-02T10:00:00.000Z');
const IDLE_S = 30;

let folder: string;
let database: TestDatabase;
/** Each is one process; of SQLite, a blocked one would block this process with all others. */
let processes: Catalog[];
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-slots-'));
  database = await createTestDatabase(folder);
  const config = loadConfig({ DATABASE_URL: database.url });
  const open = () => Catalog.open(config.database, pino({ level: 'silent' }));
  processes = [await open()];
  if (inject('postgresUrl') !== undefined) processes.push(await open(), await open());
});
afterAll(async () => {
  for (const catalog of processes) await catalog.close();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

const STEPS = ['create', 'createNow', 'admit', 'start', 'end', 'message', 'cancel'] as const;

const batch = fc.record({
  seconds: fc.nat({ max: 20 }),
  steps: fc.array(
    fc.record({
      step: fc.constantFrom(...STEPS),
      process: fc.nat(),
      session: fc.nat(),
      isIdle: fc.boolean(),
      subject: fc.constantFrom('ann', 'bob'),
    }),
    { minLength: 1, maxLength: 10 },
  ),
});

test('no more sessions than the limits hold a slot, but for messages to idle ones, and each begins once', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(batch, { minLength: 5, maxLength: 25 }), async (batches) => {
      const world = new World();
      await world.clear();
      for (const { seconds, steps } of batches) {
        world.now = new Date(world.now.getTime() + seconds * 1000);
        // All of them, so that none is in progress when the next ones begin.
        const taken = await Promise.allSettled(
          steps.map(({ process, ...step }) => world.take(processes[process % processes.length] as Catalog, step)),
        );
        for (const one of taken) if (one.status === 'rejected') throw one.reason;
        await world.check();
      }
    }),
    { seed: SEED, numRuns: processes.length > 1 ? 15 : 100 },
  );
});

/** Several processes on one catalog. */
class World {
  now = new Date(START);
  limits = { limit: LIMIT, perSubject: PER_SUBJECT };
  /** The sessions that got a slot or a place, in this order. */
  readonly sessions: string[] = [];
  readonly #starts = new Map<string, string[]>();
  readonly #subjects = new Map<string, string>();
  /** The sessions that were idle when a message has begun a turn. */
  readonly #resumed = new Set<string>();

  get capacity(): Capacity {
    return { ...this.limits, now: this.now };
  }

  static async open(): Promise<{ world: World; catalog: Catalog }> {
    const [catalog] = processes;
    if (!catalog) throw new Error('no catalog is open');
    const world = new World();
    await world.clear();
    return { world, catalog };
  }

  async clear(): Promise<void> {
    for (const table of ['session_requests', 'session_inputs', 'turns', 'archive', 'sessions'] as const) {
      await database.rows.deleteFrom(table).execute();
    }
  }

  async take(
    catalog: Catalog,
    {
      step,
      session = 0,
      isIdle = false,
      subject = 'ann',
    }: { step: (typeof STEPS)[number]; session?: number; isIdle?: boolean; subject?: string },
  ): Promise<void> {
    const at = this.now.toISOString();
    const { sessionSlots } = catalog;
    if (step === 'create' || step === 'createNow')
      return this.#create(catalog, { mayQueue: step === 'create', isIdle, subject });
    if (step === 'admit') {
      await sessionSlots.admit(this.capacity, () => newId('turn'));
      return;
    }
    const id = this.sessions[session % this.sessions.length];
    if (id === undefined) return;
    switch (step) {
      case 'start':
        return this.#start(catalog, id);
      case 'end':
        return this.#end(catalog, id);
      case 'message':
        return this.#message(catalog, id);
      case 'cancel':
        await sessionSlots.cancel(id, at);
    }
  }

  /** The invariants after each step. */
  async check(): Promise<void> {
    const { rows } = database;
    const [first] = processes;
    const { active, queued } = (await first?.sessionSlots.usage('ann', this.capacity)) ?? { active: NaN, queued: NaN };
    const requests = await rows.selectFrom('session_requests').selectAll().execute();
    const open = await rows.selectFrom('turns').select('session_id').where('archived', '=', 0).execute();
    const holding = new Set([
      ...open.map(({ session_id: id }) => id),
      ...requests.flatMap(({ session_id: id, first_turn_id: turn }) => (turn === null ? [] : id)),
    ]);
    expect(active).toBe(holding.size);
    const begun = [...holding.difference(this.#resumed)];
    expect(begun.length).toBeLessThanOrEqual(LIMIT);
    for (const subject of ['ann', 'bob']) {
      expect(begun.filter((id) => this.#subjects.get(id) === subject).length).toBeLessThanOrEqual(PER_SUBJECT);
    }
    const waiting = requests.filter(({ queue_number: number }) => number !== null);
    expect(waiting).toHaveLength(queued);
    for (const { session_id: id, first_turn_id: turn } of waiting) {
      expect([turn, this.#starts.get(id) ?? []]).toEqual([null, []]);
    }
    // No other turn is started for it until it has begun, or is cancelled.
    for (const [id, turns] of this.#starts) {
      const request = requests.find((one) => one.session_id === id);
      if (request?.cancelled_at === null) expect(new Set(turns).size).toBe(1);
    }
  }

  async #create(
    { sessionSlots, agents }: Catalog,
    { mayQueue, isIdle, subject }: { mayQueue: boolean; isIdle: boolean; subject: string },
  ): Promise<void> {
    const id = newId('ses');
    const at = this.now.toISOString();
    const spec = await agents.putSpec({ model: { name: 'm' } }, at);
    const placement = await sessionSlots.create(
      {
        session: {
          id,
          type: 'session/draft',
          agent_name: null,
          agent_version: null,
          spec_hash: spec,
          title: null,
          subject_id: subject,
          subject_type: 'user',
          subject_slug: subject,
          metadata: null,
          created_at: at,
          updated_at: at,
        },
        request: {
          session_id: id,
          request: '{}',
          agent: null,
          agent_revision: null,
          group_id: null,
          parent_session_id: null,
          idle_timeout_s: isIdle ? IDLE_S : null,
          roles: '["user"]',
        },
        input: [{ type: 'user.message', content: id }],
        turnId: newId('turn'),
        mayQueue,
      },
      this.capacity,
    );
    if (!mayQueue) expect(placement).not.toBe('queue');
    if (placement !== 'slot' && placement !== 'queue') return;
    this.sessions.push(id);
    this.#subjects.set(id, subject);
  }

  /** As `SessionQueue.start`: the command is carried out once, from any sender. */
  async #start({ sessionSlots, turns }: Catalog, id: string): Promise<void> {
    const first = await sessionSlots.firstTurn(id);
    if (!first) return;
    expect(first.input).toEqual([{ type: 'user.message', content: id }]);
    const request = { id: first.turnId, session_id: id, created_at: this.now.toISOString() };
    if (!(await sessionSlots.begin(request))) return;
    await this.#accept(turns, id, first.turnId);
    this.#starts.set(id, [...(this.#starts.get(id) ?? []), first.turnId]);
    await sessionSlots.started(id, first.turnId);
  }

  async #accept(turns: Catalog['turns'], id: string, turnId: string): Promise<void> {
    const last = await turns.last(id);
    if ((await turns.get(turnId))?.sequence !== null && last?.id === turnId) return;
    await turns.accept({
      turnId,
      sessionId: id,
      previousTurnId: null,
      sequence: (last?.sequence ?? 0) + 1,
      createdAt: this.now.toISOString(),
      title: null,
    });
  }

  async #end({ turns, archive }: Catalog, id: string): Promise<void> {
    const last = await turns.last(id);
    if (!last || last.archived) return;
    const output = { content: 'done', refusal: '' } as NonNullable<
      Extract<TurnDone['end'], { status: 'done' }>['output']
    >;
    const record: TurnDone = {
      kind: 'turn.done',
      id: newId('evt'),
      at: this.now.toISOString(),
      end: { status: 'done', output, requiredActions: [] },
      ...NO_TOTALS,
      waitedMs: 0,
      workedMs: 0,
    };
    await archive.add(last.id, [{ ordinal: 1, record }], { state: 'ended' });
  }

  /** A further message: its session takes a slot again if it has none, or is idle. */
  async #message({ sessionSlots, turns }: Catalog, id: string): Promise<void> {
    const last = await turns.last(id);
    if (!last?.archived) return;
    const turnId = newId('turn');
    const request = { id: turnId, session_id: id, created_at: this.now.toISOString() };
    const isIdle = (await this.#waitsUntil(id)) > this.now.toISOString();
    const placement = await sessionSlots.take(request, this.capacity);
    if (isIdle) this.#resumed.add(id);
    else this.#resumed.delete(id);
    expect(['slot', 'full', 'share_full']).toContain(placement);
    if (placement === 'slot') await this.#accept(turns, id, turnId);
  }

  async #waitsUntil(id: string): Promise<string> {
    const row = database.rows.selectFrom('session_requests').select('waits_until').where('session_id', '=', id);
    return (await row.executeTakeFirst())?.waits_until ?? '';
  }
}

const usage = ({ world, catalog }: { world: World; catalog: Catalog }, subject = 'ann') =>
  catalog.sessionSlots.usage(subject, world.capacity);
const admit = ({ world, catalog }: { world: World; catalog: Catalog }) =>
  catalog.sessionSlots.admit(world.capacity, () => newId('turn'));

/** Creates a session that may wait. Undefined if there is neither a slot nor a place for it. */
async function create({ world, catalog }: { world: World; catalog: Catalog }, subject: string, isIdle = false) {
  const before = world.sessions.length;
  await world.take(catalog, { step: 'create', subject, isIdle });
  return world.sessions[before];
}

test('waiting sessions are admitted in the order in which they came, before any later one', async () => {
  const opened = await World.open();
  const { world, catalog } = opened;
  for (const subject of ['ann', 'ann', 'bob', 'bob', 'bob', 'ann', 'ann']) await create(opened, subject);
  const { rows } = database;
  const queue = async () => {
    const waiting = rows.selectFrom('session_requests').select('session_id').where('queue_number', 'is not', null);
    return (await waiting.orderBy('queue_number').execute()).map(({ session_id: id }) => id);
  };
  const inOrder = await queue();
  expect(inOrder).toEqual(world.sessions.slice(LIMIT));
  // One slot is released, and belongs to the first of the queue also before it is admitted.
  await catalog.sessionSlots.cancel(world.sessions[0] ?? '', world.now.toISOString());
  await world.take(catalog, { step: 'createNow' });
  expect(await usage(opened)).toEqual({ active: LIMIT - 1, queued: 4, available: 0 });
  expect(await admit(opened)).toEqual(inOrder.slice(0, 1));
  expect(await queue()).toEqual(inOrder.slice(1));
});

test('a subject takes no more than its share of the slots and the queue, and its waiting sessions delay no other', async () => {
  const opened = await World.open();
  const { world, catalog } = opened;
  for (let i = 0; i < 5; i++) await create(opened, 'ann');
  expect(await usage(opened, 'ann')).toEqual({ active: PER_SUBJECT, queued: 3, available: 0 });
  expect(await usage(opened, 'bob')).toMatchObject({ available: 1 });
  const first = await create(opened, 'bob');
  expect(await usage(opened, 'bob')).toEqual({ active: LIMIT, queued: 3, available: 0 });
  const second = await create(opened, 'bob');
  await catalog.sessionSlots.cancel(first ?? '', world.now.toISOString());
  expect(await admit(opened)).toEqual([second]);
  await catalog.sessionSlots.cancel(world.sessions[0] ?? '', world.now.toISOString());
  expect(await admit(opened)).toEqual([world.sessions[PER_SUBJECT]]);
  // Of 1,000 places, 1 for each of 1,000 slots.
  await world.clear();
  world.limits = { limit: 1_000, perSubject: 1 };
  const placed = [];
  for (const subject of ['ann', 'ann', 'ann', 'bob']) placed.push((await create(opened, subject)) !== undefined);
  expect(placed).toEqual([true, true, false, true]);
  expect(await usage(opened, 'carl')).toEqual({ active: 2, queued: 1, available: 1 });
});

test('an idle session holds no slot, a message to it runs above the limit, and new sessions wait until there is room', async () => {
  const opened = await World.open();
  const { world, catalog } = opened;
  const step = (name: 'start' | 'end' | 'message', session: number) => world.take(catalog, { step: name, session });
  await create(opened, 'ann', true);
  await step('start', 0);
  await step('end', 0);
  expect(await usage(opened)).toEqual({ active: 0, queued: 0, available: PER_SUBJECT });
  for (const subject of ['ann', 'ann', 'bob']) await create(opened, subject);
  for (const session of [1, 2, 3]) await step('start', session);
  await step('message', 0);
  expect(await usage(opened)).toEqual({ active: LIMIT + 1, queued: 0, available: 0 });
  const next = await create(opened, 'bob');
  await step('end', 1);
  expect([await usage(opened, 'bob'), await admit(opened)]).toEqual([{ active: LIMIT, queued: 1, available: 0 }, []]);
  await step('end', 2);
  expect(await admit(opened)).toEqual([next]);
});

test('what messages to idle sessions take above the share of their subject keeps out no other', async () => {
  const opened = await World.open();
  const { world, catalog } = opened;
  for (let i = 0; i < LIMIT + 1; i++) {
    await create(opened, 'ann', true);
    await world.take(catalog, { step: 'start', session: i });
    await world.take(catalog, { step: 'end', session: i });
  }
  for (let i = 0; i < LIMIT + 1; i++) await world.take(catalog, { step: 'message', session: i });
  expect(await usage(opened, 'ann')).toEqual({ active: LIMIT + 1, queued: 0, available: 0 });
  expect(await usage(opened, 'bob')).toMatchObject({ available: LIMIT - PER_SUBJECT });
  await world.take(catalog, { step: 'createNow', subject: 'bob' });
  expect(world.sessions).toHaveLength(LIMIT + 2);
});

test('a session that is cancelled while its first turn is being started keeps its slot until that has ended', async () => {
  const opened = await World.open();
  const { world, catalog } = opened;
  const { sessionSlots } = catalog;
  const at = world.now.toISOString();
  for (let i = 0; i < 2; i++) await create(opened, 'ann');
  const [begun = '', cancelled = ''] = world.sessions;
  const requestOf = async (id: string) => {
    const first = await sessionSlots.firstTurn(id);
    return { id: first?.turnId ?? '', session_id: id, created_at: at };
  };
  const [first, second] = [await requestOf(begun), await requestOf(cancelled)];
  expect(await sessionSlots.begin(first)).toBe(true);
  for (const id of [begun, cancelled]) expect(await sessionSlots.cancel(id, at)).toBe(false);
  expect(await sessionSlots.begin(second)).toBe(false);
  expect(await usage(opened)).toMatchObject({ active: 1, queued: 0 });
  expect(await sessionSlots.started(begun, first.id)).toBe(false);
  expect(await catalog.turns.requests(cancelled)).toEqual([]);
});

test('a session stores its request and the messages with which it begins, until its first turn has them', async () => {
  const opened = await World.open();
  const { world, catalog } = opened;
  const { storedBytes, sessionSlots } = catalog;
  const id = (await create(opened, 'ann')) ?? '';
  const request = '{}'.length;
  const input = JSON.stringify([{ type: 'user.message', content: id }]).length;
  expect(await storedBytes.of('ann')).toBe(request + input);
  await world.take(catalog, { step: 'start', session: 0 });
  expect(await storedBytes.of('ann')).toBe(request);
  for (let i = 0; i < PER_SUBJECT; i++) await create(opened, 'ann');
  const waiting = world.sessions.at(-1) ?? '';
  const more = { requestId: 'req', input: [{ type: 'user.message' as const, content: waiting }] };
  for (let i = 0; i < 2; i++) expect(await sessionSlots.buffer(waiting, more, world.now.toISOString())).toBe(true);
  expect(await storedBytes.of('ann')).toBe(3 * request + 3 * input);
});
