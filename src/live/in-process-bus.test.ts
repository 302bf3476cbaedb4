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
    retrying: ignore,
    output: ignore,
    lost: ignore,
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

test('a hint is delivered to the listeners of its topic, as long as they listen', () => {
  const bus = new InProcessBus();
  const heard: string[] = [];
  const topics = ['cancel:turn_1', 'cancel:turn_1', 'cancel:turn_2', 'growth:turn_1', 'change:actions'] as const;
  const leave = topics.map((topic, i) => bus.onHint(topic, () => heard.push(`${topic}/${i}`)));
  bus.hint('cancel:turn_1');
  expect(heard).toEqual(['cancel:turn_1/0', 'cancel:turn_1/1']);
  leave[0]?.();
  bus.hint('cancel:turn_1');
  bus.hint('growth:turn_1');
  expect(heard.slice(2)).toEqual(['cancel:turn_1/1', 'growth:turn_1/3']);
});
