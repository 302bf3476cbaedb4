import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { LogRecord } from '../../core/records/log.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import { SessionWatches } from '../../features/session-stream/session-watches.ts';
import { TurnTailPool } from '../../live/turn-tail.ts';
import { stateOf } from './session-state.ts';
import { SessionView, type ViewServices } from './session-view.ts';
import type { SessionEvent } from './wire/events.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const AT = '2026-11-22T08:00:00.000Z';
/** The interval at which the catalog is asked about all watched sessions. */
const INTERVAL_MS = 5_000;

const message = (text: string): Partial<LogRecord> => ({
  kind: 'model.message',
  threadId: 'main',
  content: text,
  refusal: '',
  reasoning: '',
  toolCalls: [],
});
const done = (text: string): Partial<LogRecord> => ({
  kind: 'turn.done',
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  end: { status: 'done', requiredActions: [], output: message(text) } as never,
});

/** A turn with its log. */
class FakeTurn {
  readonly records: LogRecord[] = [];
  readonly #grown = new Set<() => void>();
  isLost = false;
  /** Awaited before each batch of one entry that is read without following. */
  pace: () => Promise<void> = () => Promise.resolve();

  constructor(text: string) {
    this.add({ kind: 'turn.created', input: [{ type: 'user.message', content: text }] });
  }

  /** Without telling those who follow. */
  addUnheard(...records: Partial<LogRecord>[]): void {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
    this.records.push(...records.map((record) => ({ at: AT, ...record }) as LogRecord));
  }

  add(...records: Partial<LogRecord>[]): this {
    this.addUnheard(...records);
    for (const wake of this.#grown) wake();
    this.#grown.clear();
    return this;
  }

  get isClosed(): boolean {
    return this.records.at(-1)?.kind === 'turn.done';
  }

  /** Waits until it has this entry, or is closed. */
  async reaches(ordinal: number, signal: AbortSignal): Promise<void> {
    while (this.records.length < ordinal && !this.isClosed) await this.#untilGrown(signal);
  }

  #untilGrown(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#grown.add(resolve);
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    });
  }
}

/** Sessions over logs in memory, in the order of their turns. Counts what their views ask for. */
function setUp() {
  const sessions = new Map<string, FakeTurn[]>();
  const asked = { news: 0, reads: 0, closes: 0, follows: 0, turns: 0 };
  const state: { error: Error | undefined; deleted: Set<string> } = { error: undefined, deleted: new Set() };
  const turnOf = (id: string): FakeTurn => {
    if (state.error) throw state.error;
    const [sessionId = '', index] = id.split('/');
    const turn = sessions.get(sessionId)?.[Number(index)];
    if (!turn || turn.isLost) throw new TurnNotFound(id);
    return turn;
  };
  const logs = {
    async *read(id: string, { from = 1, follow }: { from?: number; follow?: AbortSignal } = {}) {
      asked[follow ? 'follows' : 'reads'] += 1;
      for (let ordinal = from; ; ordinal++) {
        const turn = turnOf(id);
        if (follow) await turn.reaches(ordinal, follow);
        if (!follow) await turn.pace();
        const record = turn.records[ordinal - 1];
        if (!record) return;
        yield [{ ordinal, record }];
      }
    },
    close: async (id: string) => {
      asked.closes += 1;
      return Promise.resolve(turnOf(id).isClosed ? {} : undefined);
    },
    firstUnarchived: () => Promise.resolve(1),
  };
  const catalog = {
    turnPositions: {
      news: (ids: string[]) => {
        asked.news += 1;
        return Promise.resolve(
          ids
            .filter((id) => !state.deleted.has(id))
            .map((id) => ({ id, lastSequence: null, lastPosition: sessions.get(id)!.length - 1, hasUnplaced: false })),
        );
      },
    },
  };
  const sessionIndex = {
    turnFollowing: (sessionId: string, last?: { turn: { events_before: number } }) => {
      asked.turns += 1;
      const place = (last?.turn.events_before ?? -1) + 1;
      const row = { id: `${sessionId}/${place}`, events_before: place };
      return Promise.resolve(sessions.get(sessionId)?.[place] ? row : undefined);
    },
  };
  const [bus, log] = [new InProcessBus(), pino({ level: 'silent' })];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the methods that are called
  const services = { catalog, logs, sessionIndex } as unknown as ViewServices;
  services.sessionWatches = new SessionWatches({ catalog: services.catalog, bus, log });
  services.tails = new TurnTailPool({ logs: services.logs, bus, log });
  const view = (sessionId: string): SessionView => new SessionView(services, { sessionId, isInteractive: true });
  const add = (sessionId: string, turn: FakeTurn): FakeTurn => {
    sessions.set(sessionId, [...(sessions.get(sessionId) ?? []), turn]);
    return turn;
  };
  return { add, asked, bus, state, view };
}

/** Waiters of a view, and how many of them wait. */
async function wait(view: SessionView, count: number, timeoutMs = 25_000) {
  const gone = new AbortController();
  const waiting = { count, errors: [] as unknown[], leave: () => gone.abort() };
  for (let i = 0; i < count; i++) {
    await view.refresh();
    void view
      .untilGrown(view.count, { timeoutMs, signal: gone.signal })
      .catch((error: unknown) => waiting.errors.push(error))
      .finally(() => (waiting.count -= 1));
  }
  return waiting;
}

const answersIn = (events: SessionEvent[]): unknown[] =>
  events.flatMap(({ type, data }) => (type === 'AgentEvent' && data.kind === 'answer_event' ? [data.answer] : []));

const statusOf = (view: SessionView): string =>
  stateOf({ request: undefined, turn: view.turn, now: Date.parse(AT) }).status;

/** A view whose every event was asked for by pages of `size`. */
async function drain(view: SessionView, size = 500): Promise<SessionEvent[]> {
  const events: SessionEvent[] = [];
  for (;;) {
    await view.refresh();
    const page = await view.page(events.length, size);
    if (page.length === 0) return events;
    events.push(...page);
  }
}

test('2,000 waiters on 200 idle sessions cost two queries per interval, and nothing of Temporal', async () => {
  const { add, asked, view } = setUp();
  const views = Array.from({ length: 200 }, (_, i) => {
    add(`s${i}`, new FakeTurn('Hi').add(message('Hello.'), done('Hello.')));
    return view(`s${i}`);
  });
  const waiting = await Promise.all(views.map((each) => wait(each, 10)));
  await vi.advanceTimersByTimeAsync(0);
  const before = { ...asked };
  await vi.advanceTimersByTimeAsync(4 * INTERVAL_MS);
  expect(asked).toEqual({ ...before, news: before.news + 8 });
  expect(waiting.map(({ count }) => count)).toEqual(views.map(() => 10));
  for (const { leave } of waiting) leave();
  await vi.advanceTimersByTimeAsync(INTERVAL_MS);
  expect(waiting.every(({ count }) => count === 0)).toBe(true);
  expect(vi.getTimerCount()).toBe(0);
});

test('2,000 waiters on ten silent turns cost one read that follows each turn; all are woken by its next entry', async () => {
  const { add, asked, view } = setUp();
  const turns = Array.from({ length: 10 }, (_, i) => add(`s${i}`, new FakeTurn('Hi')));
  const views = turns.map((_, i) => view(`s${i}`));
  const waiting = await Promise.all(views.map((each) => wait(each, 200)));
  await vi.advanceTimersByTimeAsync(0);
  expect(asked.follows).toBe(10);
  const before = { ...asked };
  // Longer than what was read is followed without a request.
  await vi.advanceTimersByTimeAsync(20_000);
  expect(asked).toEqual({ ...before, news: before.news + 4 });
  for (const turn of turns.slice(1)) turn.add(message('Hello.'));
  await vi.advanceTimersByTimeAsync(100);
  expect(waiting.map(({ count }) => count)).toEqual([200, ...turns.slice(1).map(() => 0)]);
  expect(asked.reads).toBe(before.reads);
  waiting[0]?.leave();
  await vi.advanceTimersByTimeAsync(20_000);
  expect(waiting[0]?.count).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

test('clients that wait and leave at once, again and again, leave nothing behind', async () => {
  const { add, asked, view } = setUp();
  add('s', new FakeTurn('Hi'));
  const running = view('s');
  for (let i = 0; i < 500; i++) {
    const waiting = await wait(running, 1);
    await vi.advanceTimersByTimeAsync(0);
    waiting.leave();
    await vi.advanceTimersByTimeAsync(0);
  }
  // The tail that lingers, and the next query about watched sessions.
  expect(vi.getTimerCount()).toBeLessThan(5);
  expect(asked.follows).toBe(1);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(vi.getTimerCount()).toBe(0);
});

test('a new turn wakes those who wait, within the interval if the hint is lost, and its entries do at once', async () => {
  const { add, bus, view } = setUp();
  add('s', new FakeTurn('Hi').add(message('Hello.'), done('Hello.')));
  const idle = view('s');
  const [hinted, lost] = [await wait(idle, 3), view('s')];
  const unhinted = await wait(lost, 3);
  const next = add('s', new FakeTurn('And?'));
  bus.hint('session:other');
  await vi.advanceTimersByTimeAsync(INTERVAL_MS);
  expect([hinted.count, unhinted.count]).toEqual([0, 0]);
  // Read by another request while one waits: the new turn is followed nevertheless.
  next.add(message('Yes.'), done('Yes.'));
  const later = await wait(idle, 1);
  // Its cursor is beyond the end, so that it waits all the time.
  const beyond = new AbortController();
  void idle.untilGrown(1_000_000, { timeoutMs: 25_000, signal: beyond.signal });
  await vi.advanceTimersByTimeAsync(0);
  const third = add('s', new FakeTurn('Once more'));
  await idle.refresh();
  await vi.advanceTimersByTimeAsync(0);
  expect(later.count).toBe(0);
  const last = await wait(idle, 1);
  third.add(message('Again.'));
  await vi.advanceTimersByTimeAsync(1_100);
  expect(last.count).toBe(0);
  beyond.abort();
});

test('readers that wait for a session that is deleted are released', async () => {
  const { add, bus, state, view } = setUp();
  add('s', new FakeTurn('Hi').add(message('Hello.'), done('Hello.')));
  const waiting = await wait(view('s'), 5);
  await vi.advanceTimersByTimeAsync(0);
  state.deleted.add('s');
  bus.hint('session:s');
  await vi.advanceTimersByTimeAsync(0);
  expect(waiting.count).toBe(0);
  await vi.advanceTimersByTimeAsync(INTERVAL_MS);
  expect(vi.getTimerCount()).toBe(0);
});

test('an outage while they wait is an error for those who wait, and not for those after it', async () => {
  const { add, bus, state, view } = setUp();
  const turn = add('s', new FakeTurn('Hi'));
  const running = view('s');
  const waiting = await wait(running, 3);
  await vi.advanceTimersByTimeAsync(0);
  state.error = new Error('Temporal is unavailable');
  add('s', new FakeTurn('Next'));
  bus.hint('session:s');
  await vi.advanceTimersByTimeAsync(100);
  expect([waiting.count, waiting.errors.length]).toEqual([0, 3]);
  state.error = undefined;
  const again = await wait(running, 3);
  turn.add(message('Hello.'));
  await vi.advanceTimersByTimeAsync(10_000);
  expect([again.count, again.errors]).toEqual([0, []]);
});

test('a turn that is lost while it is followed fails the session instead of its requests', async () => {
  const { add, view } = setUp();
  const turn = add('s', new FakeTurn('Hi').add(message('Hel')));
  const session = view('s');
  const waiting = await wait(session, 1);
  await vi.advanceTimersByTimeAsync(0);
  turn.isLost = true;
  await session.refresh();
  expect(statusOf(session)).toBe('failed');
  // As for a process that reads it now for the first time.
  expect(session.count).toBe(0);
  expect(await drain(session)).toEqual(await drain(view('s')));
  add('s', new FakeTurn('Again').add(message('Here.'), done('Here.')));
  await vi.advanceTimersByTimeAsync(INTERVAL_MS);
  expect(waiting.count).toBe(0);
  expect(await drain(session)).toEqual(await drain(view('s')));
  expect([statusOf(session), answersIn(await drain(session))]).toEqual(['idle', ['Here.']]);
});

test('a turn that is lost after it was read leaves no gap in the positions of those behind it', async () => {
  const { add, view } = setUp();
  const [, second] = ['one', 'two', 'three'].map((text) => add('s', new FakeTurn(text).add(message(text), done(text))));
  const session = view('s');
  expect(answersIn(await drain(session, 3))).toEqual(['one', 'two', 'three']);
  second!.isLost = true;
  expect(answersIn(await session.page(0))).toEqual(['one', 'three']);
  expect(answersIn(await Array.fromAsync(session.range(0, session.count)))).toEqual(['one', 'three']);
  expect(answersIn(await drain(session, 3))).toEqual(['one', 'three']);
  expect(await drain(session, 3)).toEqual(await drain(view('s')));
});

test('a list of one type reads the logs of those turns only that have events of it', async () => {
  const { add, asked, view } = setUp();
  for (const text of ['one', 'two', 'three']) add('s', new FakeTurn(text).add(message(text), done(text)));
  const session = view('s');
  await session.refresh();
  const before = asked.reads;
  const events = await Array.fromAsync(session.range(0, 10, 'RequestStartEvent'));
  expect([events.length, session.countOf('RequestStartEvent'), asked.reads - before]).toEqual([1, 1, 1]);
});

test('a turn that is indexed before the one before it has closed comes after all of its events', async () => {
  const { add, view } = setUp();
  const first = add('s', new FakeTurn('one').add(message('one')));
  const second = add('s', new FakeTurn('two').add(message('two'), done('two')));
  const session = view('s');
  await session.refresh();
  expect(statusOf(session)).toBe('running');
  first.add(done('one'));
  await session.refresh();
  expect(statusOf(session)).toBe('idle');
  expect(answersIn(await drain(session))).toEqual(['one', 'two']);
  expect(second.isClosed).toBe(true);
});

test('a page that is read while the session grows has no gap', async () => {
  const { add, view } = setUp();
  const first = add('s', new FakeTurn('one').add(message('one'), done('one')));
  add('s', new FakeTurn('two').add(message('two'), done('two')));
  const session = view('s');
  await session.refresh();
  const reading = Promise.withResolvers<void>();
  first.pace = () => reading.promise;
  const page = session.page(0);
  const texts = Array.from({ length: 1_200 }, (_, i) => `word ${i}`);
  const third = add('s', new FakeTurn('three').add(...texts.map(message)));
  await session.refresh();
  reading.resolve();
  first.pace = () => Promise.resolve();
  const read = await page;
  third.add(done('three'));
  expect(read).toEqual((await drain(view('s'))).slice(0, read.length));
});

test('a running turn with a long log is followed, so that further reads do not read it again', async () => {
  const { add, asked, view } = setUp();
  const long = add('s', new FakeTurn('Hi').add(...Array.from({ length: 200 }, () => message('more'))));
  const session = view('s');
  await session.refresh();
  await vi.advanceTimersByTimeAsync(0);
  const { reads } = asked;
  for (let i = 0; i < 50; i++) {
    long.add(message('and more'));
    await session.refresh();
    await vi.advanceTimersByTimeAsync(100);
  }
  expect([asked.reads, asked.follows]).toEqual([reads, 1]);
  await session.refresh();
  expect(await drain(session)).toEqual(await drain(view('s')));
  await vi.advanceTimersByTimeAsync(40_000);
  expect(vi.getTimerCount()).toBe(0);
});

test('events that this process has not received are read on demand: another one may have sent them', async () => {
  const { add, view } = setUp();
  const turn = add('s', new FakeTurn('Hi'));
  const session = view('s');
  const waiting = await wait(session, 1);
  await vi.advanceTimersByTimeAsync(0);
  const known = session.count;
  turn.addUnheard(message('Hello.'));
  await session.refresh();
  expect(session.count).toBe(known);
  await session.refreshFromLog();
  expect(session.count).toBe(known + 1);
  // Another process may have sent its end to a client: that is read in any case.
  turn.addUnheard(done('Hello.'));
  await session.refresh();
  expect(statusOf(session)).toBe('idle');
  waiting.leave();
});

test('the memory of a view is bounded, however long its session', async () => {
  const { add, view } = setUp();
  const huge = 'x'.repeat(100_000);
  add('s', new FakeTurn('Hi').add(...Array.from({ length: 100 }, () => message(huge)), done('Done.')));
  const session = view('s');
  const events = await drain(session);
  expect(JSON.stringify(events).length).toBeGreaterThan(10_000_000);
  expect(session.characters).toBeLessThan(3_000_000);
});
