import { expect, test } from 'vitest';
import { NoSeat, Seats } from './seats.ts';

/** Seats that note which kernels were evicted. */
function seatsOf(options: { capacity: number; perSubject?: number; waitMs?: number }) {
  const evicted: string[] = [];
  const stopping = new AbortController();
  const { capacity, perSubject = Infinity, waitMs = 60_000 } = options;
  const seats = new Seats({ capacity, perSubject: () => perSubject, waitMs });
  const take = async (subject: string, name: string, isSubAgent = false) => {
    const evict = async (): Promise<void> => void evicted.push(name);
    return seats.take({ subject, isSubAgent, evict }, stopping.signal);
  };
  return { seats, take, evicted, stop: () => stopping.abort(new Error('stopped')) };
}

test('the kernel that has rested for longest makes room', async () => {
  const { seats, take, evicted } = seatsOf({ capacity: 2 });
  const [first, second] = [await take('a', 'first'), await take('a', 'second')];
  first.rest();
  second.rest();
  first.use();
  first.rest();
  await take('b', 'third');
  expect([evicted, seats.taken]).toEqual([['second'], 2]);
});

test('a subject with as many as it may have loses its own, although the host has room', async () => {
  const { take, evicted } = seatsOf({ capacity: 3, perSubject: 1 });
  const others = await take('b', 'of another');
  others.rest();
  const own = await take('a', 'own');
  own.rest();
  await take('a', 'next');
  expect(evicted).toEqual(['own']);
});

test('a cell waits while all kernels are busy, until one rests', async () => {
  const { take, evicted } = seatsOf({ capacity: 1 });
  const busy = await take('a', 'busy');
  const next = take('b', 'next');
  await expect(Promise.race([next, Promise.resolve('waits')])).resolves.toBe('waits');
  expect(evicted).toEqual([]);
  busy.rest();
  await next;
  expect(evicted).toEqual(['busy']);
});

test('the kernel of a sub-agent makes room first', async () => {
  const { take, evicted } = seatsOf({ capacity: 2 });
  for (const one of [await take('a', 'root'), await take('a', 'sub-agent', true)]) one.rest();
  await take('b', 'next');
  expect(evicted).toEqual(['sub-agent']);
});

test('a cell that is cancelled waits no longer', async () => {
  const { take, stop } = seatsOf({ capacity: 1 });
  await take('a', 'busy');
  const next = take('b', 'next');
  stop();
  await expect(next).rejects.toThrow('stopped');
});

test('a cell that waits in vain gets an error', async () => {
  const { take } = seatsOf({ capacity: 1, waitMs: 1 });
  await take('a', 'busy');
  await expect(take('b', 'next')).rejects.toThrow(NoSeat);
});

test('a seat that was left twice frees one', async () => {
  const { seats, take } = seatsOf({ capacity: 1 });
  const seat = await take('a', 'one');
  seat.leave();
  await take('a', 'two');
  seat.leave();
  expect(seats.taken).toBe(1);
});
