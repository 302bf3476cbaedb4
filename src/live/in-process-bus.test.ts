import { expect, test } from 'vitest';
import type { LiveFrame, LiveSnapshot } from './bus.ts';
import { InProcessBus } from './in-process-bus.ts';

const frame = (attempt: number, n: number, content: string): LiveFrame => ({
  turnId: 'turn_1',
  threadId: 'main',
  messageId: 'msg_1',
  createdAt: '2026-11-21T08:00:00.000Z',
  after: 1,
  attempt,
  n,
  delta: { content },
});

test('finishing an attempt drops its text, but not the text of the next attempt', () => {
  const bus = new InProcessBus();
  const snapshots: LiveSnapshot[] = [];
  const ignore = (): void => undefined;
  bus.subscribe('turn_1', {
    frame: ignore,
    snapshot: (snapshot) => snapshots.push(snapshot),
    lost: ignore,
    grows: ignore,
  });
  bus.publish(frame(1, 0, 'old'));
  bus.publish(frame(2, 0, 'new'));
  bus.finish({ turnId: 'turn_1', messageId: 'msg_1', attempt: 1 });
  bus.requestSnapshots('turn_1');
  expect(snapshots).toMatchObject([{ attempt: 2, frames: 1, text: { content: 'new' } }]);
  bus.finish({ turnId: 'turn_1', messageId: 'msg_1', attempt: 2 });
  bus.requestSnapshots('turn_1');
  expect(snapshots.length).toBe(1);
});

test('the hint of a cancel is delivered to the listeners of its turn, as long as they listen', () => {
  const bus = new InProcessBus();
  const heard: string[] = [];
  const leave = ['turn_1', 'turn_1', 'turn_2'].map((turnId, i) =>
    bus.onCancelHint(turnId, () => heard.push(`${turnId}/${i}`)),
  );
  bus.hintCancel('turn_1');
  expect(heard).toEqual(['turn_1/0', 'turn_1/1']);
  leave[0]?.();
  bus.hintCancel('turn_1');
  expect(heard.slice(2)).toEqual(['turn_1/1']);
});
