import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { checkCentralProperty, deliveries } from '../../test/support/central-property.ts';
import { randomThreads } from '../../test/support/random-threads.ts';
import { randomTurn } from '../../test/support/random-turn.ts';
import { randomWaiting } from '../../test/support/random-waiting.ts';
import { cases } from '../../test/support/seed.ts';
import { frameToWire } from '../api/sessions/turn-event-reader.ts';
import { InProcessBus } from './in-process-bus.ts';
import { TurnFeed } from './turn-feed.ts';
import { StreamSequencer, type NumberedFrame } from './stream-sequencer.ts';
import { OWNER } from '../../test/support/readers.ts';

const bus = new InProcessBus();

test('every cut of a stream, resumed at any time, folds to the log', async () => {
  await checkCentralProperty({ worker: bus, api: bus }, cases(300));
});

test('the same holds for sub-agents that work in parallel, thread by thread', async () => {
  await checkCentralProperty({ worker: bus, api: bus }, cases(150), randomThreads());
});

test('the same holds for turns that wait for people, and are steered while they run', async () => {
  await checkCentralProperty({ worker: bus, api: bus }, cases(100), randomWaiting());
});

test('without faults a message that completes is sent once, delta by delta', async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(randomTurn(1), randomThreads(1), randomWaiting(1)), async (steps) => {
      const faults = [{ bus: 'deliver' as const, lag: 0, snapshot: false }];
      const { entries, deliver, end } = await deliveries({ worker: bus, api: bus }, steps, faults);
      const feed = new TurnFeed();
      const frames: NumberedFrame[] = [];
      feed.join(new StreamSequencer(), (sent) => frames.push(...sent));
      for (const step of deliver) await step(feed);
      for (const { record } of entries) {
        if (record.kind !== 'model.message' || record.finishReason === 'error' || record.finishReason === 'cancelled') {
          continue;
        }
        const streamed = steps.filter((one) => 'frame' in one && one.frame.messageId === record.id);
        const events = frames.map(({ frame }) => frameToWire(frame, OWNER));
        const sent = events.filter(({ id }) => id === record.id).map(({ type }) => type);
        expect(sent).toEqual(['model.message', ...Array<string>(streamed.length + 1).fill('model.message.delta')]);
      }
      end();
    }),
    { numRuns: cases(200) },
  );
});
