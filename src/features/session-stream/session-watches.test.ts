import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { SessionNews } from './turn-positions.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import { SessionWatches, type SessionWatch } from './session-watches.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const INTERVAL_MS = 5_000;

/** Watches over a catalog that has `news`; counts its queries. */
function setUp() {
  const bus = new InProcessBus();
  const news = new Map<string, Omit<SessionNews, 'id'> | undefined>();
  const state = { queries: 0, fails: false };
  const catalog = {
    turnPositions: {
      news: (ids: string[]) => {
        state.queries += 1;
        if (state.fails) return Promise.reject(new Error('the catalog is unavailable'));
        return Promise.resolve(
          ids.flatMap((id) => {
            const found = news.has(id) ? news.get(id) : { lastPosition: 0, hasUnplaced: false };
            return found ? [{ id, ...found }] : [];
          }),
        );
      },
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the method that is called
  const watches = new SessionWatches({
    catalog,
    bus,
    log: pino({ level: 'silent' }),
  } as unknown as ConstructorParameters<typeof SessionWatches>[0]);
  return { bus, news, state, watches };
}

/** News of a session whose turns up to `position` the reader has. */
const isOldAt =
  (position: number) =>
  ({ hasUnplaced, lastPosition }: SessionNews): boolean =>
    !hasUnplaced && (lastPosition ?? -1) < position;

/** Whether a watch that waits at `position` has been woken. */
function waiting(watch: SessionWatch, position = 3): { isWoken: boolean } {
  const state = { isWoken: false };
  void watch.untilNews(isOldAt(position)).then(() => (state.isWoken = true));
  return state;
}

test('1,000 sessions are checked by ten queries per interval, and by none when they have no readers', async () => {
  const { state, watches } = setUp();
  const all = Array.from({ length: 1_000 }, (_, i) => watches.watch(`ses_${i}`, () => undefined));
  const states = all.map((watch) => waiting(watch));
  await vi.advanceTimersByTimeAsync(3 * INTERVAL_MS);
  expect(state.queries).toBe(30);
  expect(states.filter(({ isWoken }) => isWoken)).toEqual([]);
  for (const watch of all) watch[Symbol.dispose]();
  await vi.advanceTimersByTimeAsync(3 * INTERVAL_MS);
  expect(state.queries).toBe(30);
  expect(vi.getTimerCount()).toBe(0);
});

test('one query after a hint wakes all readers of the session, and no others', async () => {
  const { bus, news, state, watches } = setUp();
  const readers = Array.from({ length: 5 }, () => waiting(watches.watch('ses_1', () => undefined)));
  const other = waiting(watches.watch('ses_2', () => undefined));
  news.set('ses_1', { lastPosition: 0, hasUnplaced: true });
  bus.hint('session:ses_1');
  await vi.advanceTimersByTimeAsync(0);
  expect(state.queries).toBe(1);
  expect(readers.map(({ isWoken }) => isWoken)).toEqual([true, true, true, true, true]);
  expect(other.isWoken).toBe(false);
});

test('without a hint a new turn is found within the interval, also after an outage', async () => {
  const { news, state, watches } = setUp();
  const reader = waiting(
    watches.watch('ses_1', () => undefined),
    3,
  );
  // Another reader has given the turn its place.
  news.set('ses_1', { lastPosition: 3, hasUnplaced: false });
  state.fails = true;
  await vi.advanceTimersByTimeAsync(INTERVAL_MS);
  expect([state.queries, reader.isWoken]).toEqual([1, false]);
  state.fails = false;
  await vi.advanceTimersByTimeAsync(INTERVAL_MS);
  expect(reader.isWoken).toBe(true);
});

test('news that arrives while the reader looks for the next turn wakes it as soon as it waits', async () => {
  const { bus, watches } = setUp();
  const watch = watches.watch('ses_1', () => undefined);
  bus.hint('session:ses_1');
  await vi.advanceTimersByTimeAsync(0);
  await watch.untilNews(isOldAt(3));
  const again = waiting(watch, 3);
  await vi.advanceTimersByTimeAsync(0);
  expect(again.isWoken).toBe(false);
  watch[Symbol.dispose]();
  await vi.advanceTimersByTimeAsync(0);
  expect(again.isWoken).toBe(true);
});

test('the readers of a deleted session are notified', async () => {
  const { bus, news, watches } = setUp();
  let deleted = 0;
  for (let i = 0; i < 3; i++) watches.watch('ses_1', () => (deleted += 1));
  news.set('ses_1', undefined);
  bus.hint('session:ses_1');
  await vi.advanceTimersByTimeAsync(0);
  expect(deleted).toBe(3);
});
