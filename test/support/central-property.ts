import fc from 'fast-check';
import { expect } from 'vitest';
import type { LiveBus, LiveFrame } from '../../src/live/bus.ts';
import { TurnFeed } from '../../src/live/turn-feed.ts';
import { StreamSequencer, type NumberedFrame } from '../../src/live/stream-sequencer.ts';
import { parseCursor, type Cursor } from '../../src/core/cursor.ts';
import { TurnProjection } from '../../src/core/projection.ts';
import type { LogEntry } from '../../src/core/records.ts';
import { frameToWire } from '../../src/api/sessions/turn-stream.ts';
import { toWire } from '../../src/api/sessions/wire/to-wire.ts';
import { BusTap } from './bus-tap.ts';
import { ClientFold } from './client-fold.ts';
import { randomTurn, TURN_ID, type Happening } from './random-turn.ts';

/** The bus as it is at a worker and at an API; within one process they are the same. */
export interface BusEnds {
  worker: LiveBus;
  api: LiveBus;
}

/** What the bus does to a frame and the tail to a commit; drawn for each happening. */
const fault = fc.record({
  bus: fc.constantFrom('deliver', 'deliver', 'deliver', 'drop', 'double', 'late'),
  lag: fc.integer({ min: 0, max: 4 }),
  snapshot: fc.boolean(),
});
export type Fault = typeof fault extends fc.Arbitrary<infer F> ? F : never;

type Delivery = (feed: TurnFeed) => Promise<void>;

interface Deliveries {
  entries: LogEntry[];
  deliver: Delivery[];
  /** What was in progress is not any more. */
  end: () => void;
}

/** The happenings as a process hears of them: the bus as the faults say, commits in order but late. */
export async function deliveries(
  { worker, api }: BusEnds,
  happenings: Happening[],
  faults: Fault[],
): Promise<Deliveries> {
  const projection = new TurnProjection();
  const published = happenings.flatMap((happening) => ('frame' in happening ? [happening.frame] : []));
  const messages = new Set(published.map(({ messageId }) => messageId)).size;
  const tap = new BusTap(api, TURN_ID);
  await untilHeard(worker, tap);
  for (const frame of published) worker.publish(frame);
  const frames = [...(await tap.heard(published.length))];
  const timed: { time: number; deliver: Delivery }[] = [];
  const all: LogEntry[] = [];
  let committed = 0;
  for (const [i, happening] of happenings.entries()) {
    const { bus: behaviour, lag, snapshot } = faults[i % faults.length] ?? { bus: 'deliver', lag: 0, snapshot: false };
    if ('event' in happening) {
      const entries = projection.feed(happening.event);
      all.push(...entries);
      committed = Math.max(committed, i + lag);
      timed.push({ time: committed, deliver: async (feed) => entries.forEach((entry) => feed.entry(entry)) });
      continue;
    }
    const frame = frames.shift();
    expect(frame).toEqual(happening.frame);
    const deliver: Delivery = async (feed) => {
      if (!frame || feed.frame(frame) || !snapshot) return;
      for (const each of await tap.ask(messages)) feed.snapshot(each);
    };
    if (behaviour !== 'drop') timed.push({ time: behaviour === 'late' ? i + lag : i, deliver });
    if (behaviour === 'double') timed.push({ time: i + lag, deliver });
  }
  return {
    entries: all,
    deliver: timed.sort((a, b) => a.time - b.time).map(({ deliver }) => deliver),
    end: () => {
      for (const frame of published) worker.finish(frame);
      tap.close();
    },
  };
}

/** Waits until a frame that the worker publishes reaches the tap. */
async function untilHeard(worker: LiveBus, tap: BusTap): Promise<void> {
  const frame: LiveFrame = {
    turnId: TURN_ID,
    threadId: 'main',
    messageId: 'msg_before',
    createdAt: '2026-11-21T08:00:00.000Z',
    after: 0,
    attempt: 1,
    n: 0,
    delta: { content: 'hear, hear' },
  };
  worker.publish(frame);
  await tap.ask(1);
  worker.finish(frame);
  tap.frames.length = 0;
}

export function fold(frames: NumberedFrame[]): ClientFold {
  const client = new ClientFold();
  for (const { frame } of frames) client.add(frameToWire(frame));
  return client;
}

export function expectRising(frames: NumberedFrame[]): void {
  for (const [i, { sequenceNumber }] of frames.entries()) {
    const before = frames[i - 1];
    if (before) expect(sequenceNumber).toBeGreaterThan(before.sequenceNumber);
  }
}

/** A client that takes so many events from each of its connections, and no more. */
class FewAtATime {
  readonly frames: NumberedFrame[] = [];
  connections = 0;
  readonly #feed: TurnFeed;
  readonly #each: number;
  #taken = 0;
  #reader: StreamSequencer | undefined;

  constructor(feed: TurnFeed, each: number) {
    this.#feed = feed;
    this.#each = each;
    this.#connect();
  }

  get isAtEnd(): boolean {
    const last = this.frames.at(-1)?.frame;
    return last?.kind === 'record' && last.record.kind === 'turn.done';
  }

  /** Connects again, if it has taken what it takes from one connection. */
  next(): void {
    if (this.#taken === this.#each && !this.isAtEnd) this.#connect();
  }

  #connect(): void {
    if (this.#reader) this.#feed.leave(this.#reader);
    this.#reader = new StreamSequencer(cursorAfter(this.frames));
    this.#taken = 0;
    this.connections += 1;
    this.#feed.join(this.#reader, (sent) => {
      const taken = sent.slice(0, this.#each - this.#taken);
      this.#taken += taken.length;
      this.frames.push(...taken);
    });
  }
}

/** Every cut of a stream, resumed at any time, folds to the log. */
export async function checkCentralProperty(ends: BusEnds, numRuns: number): Promise<void> {
  await fc.assert(
    fc.asyncProperty(
      randomTurn(),
      fc.array(fault, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 0, max: 6 }),
      async (happenings, faults, away) => {
        const { entries, deliver, end } = await deliveries(ends, happenings, faults);
        const expected = entries.map(({ record }) => toWire(record));

        // Each reader is cut after its `cut`-th frame, stays away for a while and comes back at its cursor.
        interface Cut {
          frames: NumberedFrame[];
          reader: StreamSequencer;
          back: number | undefined;
        }
        const feed = new TurnFeed();
        const whole: NumberedFrame[] = [];
        feed.join(new StreamSequencer(), (frames) => whole.push(...frames));
        const cuts: Cut[] = [];
        for (let cut = 0; cut < happenings.length + entries.length; cut++) {
          const frames: NumberedFrame[] = [];
          const reader = new StreamSequencer();
          const state: Cut = { frames, reader, back: undefined };
          cuts.push(state);
          feed.join(reader, (sent) => {
            if (state.back !== undefined) return;
            frames.push(...sent.slice(0, cut - frames.length));
            if (frames.length === cut) state.back = away;
          });
          if (cut === 0) state.back = away;
        }
        const few = [1, 2, 3].map((each) => new FewAtATime(feed, each));
        for (const step of deliver) {
          await step(feed);
          for (const client of few) client.next();
          for (const state of cuts) {
            if (state.back === undefined || state.back-- > 0) continue;
            resume(feed, state.reader, state.frames);
            state.back = Infinity;
          }
        }
        for (const { back, reader, frames } of cuts) if (back !== Infinity) resume(feed, reader, frames);

        for (const client of few) {
          // From here on each entry is durable: its message may have been begun, and comes whole then.
          const enough = client.connections + 2 * expected.length;
          while (!client.isAtEnd && client.connections < enough) client.next();
          expect(fold(client.frames).events).toEqual(expected);
          expectRising(client.frames);
        }

        expect(fold(whole).events).toEqual(expected);
        expectRising(whole);
        for (const { frames } of cuts) {
          expect(fold(frames).events).toEqual(expected);
          expectRising(frames);
        }
        end();
      },
    ),
    { numRuns },
  );
}

function resume(feed: TurnFeed, cut: StreamSequencer, frames: NumberedFrame[]): void {
  feed.leave(cut);
  feed.join(new StreamSequencer(cursorAfter(frames)), (sent) => frames.push(...sent));
}

export function cursorAfter(frames: NumberedFrame[]): Cursor {
  const cursor = parseCursor(frames.at(-1)?.sequenceNumber ?? 0);
  if (!cursor) throw new Error('a stream sent a number that is no cursor');
  return cursor;
}
