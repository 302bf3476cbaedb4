import { expect, test } from 'vitest';
import { AwaitedSignIns } from './awaited-sign-ins.ts';

const server = (signInId: string) => ({ id: signInId, name: signInId, signInId, authUrl: 'https://x/' });

test('a thread waits until all of its sign-ins have ended, or it has ended itself', () => {
  const signIns = new AwaitedSignIns();
  signIns.require({ threadId: 'main', servers: [server('a'), server('b')] });
  signIns.require({ threadId: 'thread_1', servers: [server('b')] });
  signIns.end('a');
  expect(['main', 'thread_1'].map((id) => signIns.isWaiting(id))).toEqual([true, true]);
  signIns.threadEnded('thread_1');
  expect(signIns.isWaiting('thread_1')).toBe(false);
  signIns.end('b');
  expect(signIns.isWaiting('main')).toBe(false);
});
