import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { randomTurn } from '../../test/support/random-turn.ts';
import { applyDelta, emptyText } from '../core/message.ts';
import type { LiveFrame } from './bus.ts';
import { ReceivedMessages } from './received-messages.ts';

function textOf(frames: LiveFrame[]) {
  const text = emptyText();
  for (const { delta } of frames) applyDelta(text, delta);
  return text;
}

test('a message in progress is always a prefix of its latest attempt, in any order of frames', () => {
  fc.assert(
    fc.property(randomTurn(), fc.array(fc.nat(), { minLength: 40, maxLength: 40 }), (steps, shuffle) => {
      const frames = steps.flatMap((one) => ('frame' in one ? [one.frame] : []));
      const arrivals = frames
        .flatMap((frame, i) => ((shuffle[i] ?? 0) % 5 === 0 ? [] : [{ frame, time: i + ((shuffle[i] ?? 0) % 3) }]))
        .sort((a, b) => a.time - b.time);
      const live = new ReceivedMessages();
      const latest = new Map<string, number>();
      for (const { frame } of arrivals) {
        live.frame(frame);
        latest.set(frame.messageId, Math.max(latest.get(frame.messageId) ?? 0, frame.attempt));
        for (const message of live.all) {
          const attempt = frames.filter((f) => f.messageId === message.id && f.attempt === latest.get(message.id));
          expect(message.attempt).toBe(latest.get(message.id));
          expect(message.text).toEqual(textOf(attempt.slice(0, message.frames)));
        }
      }
    }),
  );
});

test('a settled message accepts no more frames', () => {
  const live = new ReceivedMessages();
  const frame: LiveFrame = {
    turnId: 'turn_1',
    threadId: 'main',
    messageId: 'msg_1',
    createdAt: '2026-11-21T08:00:00.000Z',
    after: 1,
    attempt: 1,
    n: 0,
    delta: { content: 'a' },
  };
  live.frame(frame);
  live.settle({ id: 'msg_1', threadId: 'main' }, 2);
  expect(live.frame({ ...frame, n: 1 })).toEqual({ type: 'none' });
  expect(live.frame({ ...frame, attempt: 2 })).toEqual({ type: 'none' });
  expect([...live.all]).toEqual([]);
});
