import { fc } from './fast-check.ts';
import { expect } from 'vitest';
import type { LiveBus, LiveFrame } from '../../src/live/bus.ts';
import { TurnFeed } from '../../src/live/turn-feed.ts';
import { StreamSequencer, type NumberedFrame } from '../../src/live/stream-sequencer.ts';
import { parseCursor, type Cursor } from '../../src/core/cursor.ts';
import { Turn } from '../../src/core/turn.ts';
import type { LogEntry } from '../../src/core/records/log.ts';
import { frameToWire } from '../../src/api/sessions/turn-event-reader.ts';
import { toWire } from '../../src/api/sessions/wire/events-to-wire.ts';
import { inOrder } from './api-client.ts';
import type { SessionEvent } from '../../src/api/sessions/wire/events.ts';
import { BusTap } from './bus-tap.ts';
import { ClientFold } from './client-fold.ts';
import { randomTurn, TURN_ID, type TurnStep } from './random-turn.ts';
import { OWNER } from './readers.ts';

/** The bus as a worker and as an API sees it; within one process they are the same. */
export interface BusEnds {
  worker: LiveBus;
  api: LiveBus;
}

/** How the bus treats a frame, how late the tail sees a commit; drawn for each step. */
export const fault = fc.record({
  bus: fc.constantFrom('deliver', 'deliver', 'deliver', 'drop', 'duplicate', 'late'),
  lag: fc.integer({ min: 0, max: 4 }),
  snapshot: fc.boolean(),
});
export type Fault = typeof fault extends fc.Arbitrary<infer F> ? F : never;

type Delivery = (feed: TurnFeed) => Promise<void>;

interface Deliveries {
  entries: LogEntry[];
  deliver: Delivery[];
  /** Finishes all messages on the bus and closes the subscription. */
  end: () => void;
}

/** The steps of a turn as an API process receives them: frames with the given faults, commits in order but late. */
export async function deliveries({ worker, api }: BusEnds, steps: TurnStep[], faults: Fault[]): Promise<Deliveries> {
  const projection = new Turn();
  const published = steps.flatMap((step) => ('frame' in step ? [step.frame] : []));
  const messages = new Set(published.map(({ messageId }) => messageId)).size;
  const tap = new BusTap(api, TURN_ID);
  await untilConnected(worker, tap);
  for (const frame of published) worker.publish(frame);
  const frames = [...(await tap.receiveFrames(published.length))];
  const timed: { time: number; deliver: Delivery }[] = [];
  const all: LogEntry[] = [];
  let committed = 0;
  for (const [i, step] of steps.entries()) {
    const { bus: behaviour, lag, snapshot } = faults[i % faults.length] ?? { bus: 'deliver', lag: 0, snapshot: false };
    if ('event' in step) {
      const entries = projection.feed(step.event);
      all.push(...entries);
      committed = Math.max(committed, i + lag);
      timed.push({ time: committed, deliver: async (feed) => entries.forEach((entry) => feed.entry(entry)) });
      continue;
    }
    const frame = frames.shift();
    expect(frame).toEqual(step.frame);
    const deliver: Delivery = async (feed) => {
      if (!frame || feed.frame(frame) || !snapshot) return;
      for (const each of await tap.requestSnapshots(messages)) feed.snapshot(each);
    };
    if (behaviour !== 'drop') timed.push({ time: behaviour === 'late' ? i + lag : i, deliver });
    if (behaviour === 'duplicate') timed.push({ time: i + lag, deliver });
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
async function untilConnected(worker: LiveBus, tap: BusTap): Promise<void> {
  const frame: LiveFrame = {
    turnId: TURN_ID,
    threadId: 'main',
    messageId: 'msg_before',
    createdAt: '2026-11-21T08:00:00.000Z',
    after: 0,
    attempt: 1,
    n: 0,
    delta: { content: 'first' },
  };
  worker.publish(frame);
  await tap.requestSnapshots(1);
  worker.finish(frame);
  tap.frames.length = 0;
}

export function fold(frames: NumberedFrame[]): ClientFold {
  const client = new ClientFold();
  for (const { frame } of frames) client.add(frameToWire(frame, OWNER));
  return client;
}

export function expectRising(frames: NumberedFrame[]): void {
  for (const [i, { sequenceNumber }] of frames.entries()) {
    const before = frames[i - 1];
    if (before) expect(sequenceNumber).toBeGreaterThan(before.sequenceNumber);
  }
}

/** A client that reads `limit` frames from each of its connections. */
class ShortConnections {
  readonly frames: NumberedFrame[] = [];
  connections = 0;
  readonly #feed: TurnFeed;
  readonly #limit: number;
  #taken = 0;
  #reader: StreamSequencer | undefined;

  constructor(feed: TurnFeed, limit: number) {
    this.#feed = feed;
    this.#limit = limit;
    this.#connect();
  }

  get isAtEnd(): boolean {
    const last = this.frames.at(-1)?.frame;
    return last?.kind === 'record' && last.record.kind === 'turn.done';
  }

  /** Connects again if the connection has delivered `limit` frames. */
  next(): void {
    if (this.#taken === this.#limit && !this.isAtEnd) this.#connect();
  }

  #connect(): void {
    if (this.#reader) this.#feed.leave(this.#reader);
    this.#reader = new StreamSequencer(cursorAfter(this.frames));
    this.#taken = 0;
    this.connections += 1;
    this.#feed.join(this.#reader, (sent) => {
      const taken = sent.slice(0, this.#limit - this.#taken);
      this.#taken += taken.length;
      this.frames.push(...taken);
    });
  }
}

/** Every cut of a stream, resumed at any time, folds to the log. */
export async function checkCentralProperty(ends: BusEnds, numRuns: number, turns = randomTurn()): Promise<void> {
  await fc.assert(
    fc.asyncProperty(
      turns,
      fc.array(fault, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 0, max: 6 }),
      async (steps, faults, pause) => {
        const { entries, deliver, end } = await deliveries(ends, steps, faults);
        const expected = entries.map(({ record }) => toWire(record, OWNER));

        // Each reader is disconnected after its `cut`-th frame and resumes from its cursor `pause` deliveries later.
        interface Cut {
          frames: NumberedFrame[];
          reader: StreamSequencer;
          /** Deliveries until the reader resumes; undefined while it is connected, infinite once it has resumed. */
          resumesIn: number | undefined;
        }
        const feed = new TurnFeed();
        const whole: NumberedFrame[] = [];
        feed.join(new StreamSequencer(), (frames) => whole.push(...frames));
        const cuts: Cut[] = [];
        for (let cut = 0; cut < steps.length + entries.length; cut++) {
          const frames: NumberedFrame[] = [];
          const reader = new StreamSequencer();
          const state: Cut = { frames, reader, resumesIn: undefined };
          cuts.push(state);
          feed.join(reader, (sent) => {
            if (state.resumesIn !== undefined) return;
            frames.push(...sent.slice(0, cut - frames.length));
            if (frames.length === cut) state.resumesIn = pause;
          });
          if (cut === 0) state.resumesIn = pause;
        }
        const clients = [1, 2, 3].map((limit) => new ShortConnections(feed, limit));
        for (const step of deliver) {
          await step(feed);
          for (const client of clients) client.next();
          for (const state of cuts) {
            if (state.resumesIn === undefined || state.resumesIn-- > 0) continue;
            resume(feed, state.reader, state.frames);
            state.resumesIn = Infinity;
          }
        }
        for (const { resumesIn, reader, frames } of cuts) if (resumesIn !== Infinity) resume(feed, reader, frames);

        for (const client of clients) {
          // All entries are durable now; one message may have been sent in part, and is sent whole then.
          const maxConnections = client.connections + 2 * expected.length;
          for (let n = client.connections; n < maxConnections && !client.isAtEnd; n++) client.next();
          expectFolds(client.frames, expected);
          expectRising(client.frames);
        }

        expectFolds(whole, expected);
        expectRising(whole);
        for (const { frames } of cuts) {
          expectFolds(frames, expected);
          expectRising(frames);
        }
        end();
      },
    ),
    { numRuns },
  );
}

function expectFolds(frames: NumberedFrame[], expected: SessionEvent[]): void {
  expect(inOrder(fold(frames).events)).toEqual(inOrder(expected));
}

function resume(feed: TurnFeed, cut: StreamSequencer, frames: NumberedFrame[]): void {
  feed.leave(cut);
  feed.join(new StreamSequencer(cursorAfter(frames)), (sent) => frames.push(...sent));
}

export function cursorAfter(frames: NumberedFrame[]): Cursor {
  const cursor = parseCursor(frames.at(-1)?.sequenceNumber ?? 0);
  if (!cursor) throw new Error('a stream sent a number that is not a cursor');
  return cursor;
}
