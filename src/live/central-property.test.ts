import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ClientFold } from '../../test/support/client-fold.ts';
import { randomTurn, TURN_ID, type Happening } from '../../test/support/random-turn.ts';
import { parseCursor } from '../log/ordinals.ts';
import { TurnProjection } from '../log/projection.ts';
import type { LogEntry } from '../log/records.ts';
import { toWire } from '../wire/project.ts';
import { InProcessBus } from './in-process-bus.ts';
import { TurnFeed } from './turn-feed.ts';
import { TurnReader, type StreamFrame } from './turn-reader.ts';

/** What the bus does to a frame and the tail to a commit; drawn for each happening. */
const fault = fc.record({
  bus: fc.constantFrom('deliver', 'deliver', 'deliver', 'drop', 'double', 'late'),
  lag: fc.integer({ min: 0, max: 4 }),
  snapshot: fc.boolean(),
});
type Fault = typeof fault extends fc.Arbitrary<infer F> ? F : never;

type Delivery = (feed: TurnFeed) => Promise<void>;

/** The happenings as a process hears of them: the bus as the faults say, commits in order but late. */
function deliveries(happenings: Happening[], faults: Fault[]): { entries: LogEntry[]; deliver: Delivery[] } {
  const projection = new TurnProjection();
  const bus = new InProcessBus();
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
    const { frame } = happening;
    bus.publish(frame);
    const deliver: Delivery = async (feed) => {
      if (!feed.frame(frame) && snapshot) for (const each of await bus.snapshots(TURN_ID)) feed.snapshot(each);
    };
    if (behaviour !== 'drop') timed.push({ time: behaviour === 'late' ? i + lag : i, deliver });
    if (behaviour === 'double') timed.push({ time: i + lag, deliver });
  }
  return { entries: all, deliver: timed.sort((a, b) => a.time - b.time).map(({ deliver }) => deliver) };
}

function fold(frames: StreamFrame[]): ClientFold {
  const client = new ClientFold();
  for (const { event } of frames) client.add(event);
  return client;
}

function expectRising(frames: StreamFrame[]): void {
  for (const [i, { sequenceNumber }] of frames.entries()) {
    const before = frames[i - 1];
    if (before) expect(sequenceNumber).toBeGreaterThan(before.sequenceNumber);
  }
}

test('every cut of a stream, resumed at any time, folds to the log', async () => {
  await fc.assert(
    fc.asyncProperty(
      randomTurn(),
      fc.array(fault, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 0, max: 6 }),
      async (happenings, faults, away) => {
        const { entries, deliver } = deliveries(happenings, faults);
        const expected = entries.map(({ record }) => toWire(record));

        // Each reader is cut after its `cut`-th frame, stays away for a while and comes back at its cursor.
        interface Cut {
          frames: StreamFrame[];
          reader: TurnReader;
          back: number | undefined;
        }
        const feed = new TurnFeed();
        const whole: StreamFrame[] = [];
        feed.join(new TurnReader(), (frames) => whole.push(...frames));
        const cuts: Cut[] = [];
        for (let cut = 0; cut < happenings.length + entries.length; cut++) {
          const frames: StreamFrame[] = [];
          const reader = new TurnReader();
          const state: Cut = { frames, reader, back: undefined };
          cuts.push(state);
          feed.join(reader, (sent) => {
            if (state.back !== undefined) return;
            frames.push(...sent.slice(0, cut - frames.length));
            if (frames.length === cut) state.back = away;
          });
          if (cut === 0) state.back = away;
        }
        for (const step of deliver) {
          await step(feed);
          for (const state of cuts) {
            if (state.back === undefined || state.back-- > 0) continue;
            resume(feed, state.reader, state.frames);
            state.back = Infinity;
          }
        }
        for (const { back, reader, frames } of cuts) if (back !== Infinity) resume(feed, reader, frames);

        expect(fold(whole).events).toEqual(expected);
        expectRising(whole);
        for (const { frames } of cuts) {
          expect(fold(frames).events).toEqual(expected);
          expectRising(frames);
        }
      },
    ),
    { numRuns: 300 },
  );
});

function resume(feed: TurnFeed, cut: TurnReader, frames: StreamFrame[]): void {
  feed.leave(cut);
  const cursor = parseCursor(frames.at(-1)?.sequenceNumber ?? 0);
  if (!cursor) throw new Error('a stream sent a number that is no cursor');
  feed.join(new TurnReader(cursor), (sent) => frames.push(...sent));
}

test('without faults a message that completes is sent once, delta by delta', async () => {
  await fc.assert(
    fc.asyncProperty(randomTurn(1), async (happenings) => {
      const { entries, deliver } = deliveries(happenings, [{ bus: 'deliver', lag: 0, snapshot: false }]);
      const feed = new TurnFeed();
      const frames: StreamFrame[] = [];
      feed.join(new TurnReader(), (sent) => frames.push(...sent));
      for (const step of deliver) await step(feed);
      for (const { record } of entries) {
        if (record.kind !== 'model.message' || record.finishReason === 'error' || record.finishReason === 'cancelled') {
          continue;
        }
        const streamed = happenings.filter((one) => 'frame' in one && one.frame.messageId === record.id);
        const sent = frames.filter(({ event }) => event.id === record.id).map(({ event }) => event.type);
        expect(sent).toEqual(['model.message', ...Array<string>(streamed.length + 1).fill('model.message.delta')]);
      }
    }),
    { numRuns: 200 },
  );
});
