import { expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import { endOfThread, startable } from './sub-agents.ts';

test('a message starts at most 10 sub-agents, a turn 50, and those of depth 3 none', () => {
  expect([0, 1, 2, 3].map((depth) => startable(depth, 0))).toEqual([10, 10, 10, 0]);
  expect([40, 45, 50, 51].map((started) => startable(0, started))).toEqual([10, 5, 0, 0]);
});

test('the end of a thread comes before the result of its call, which has what the end was', () => {
  const at = '2026-12-01T08:00:00.000Z';
  const parent = { threadId: 'main', toolCallId: 'c1' };
  const thread = { threadId: 'thr_1', title: 'look', parent };
  const output = modelMessage({ threadId: 'thr_1', content: 'found' });
  const done = { status: 'done' as const };
  const error = { status: 'error' as const, message: 'lost' };
  expect(endOfThread(thread, { at, end: done, answer: 'found', output })).toStrictEqual([
    { kind: 'thread.done', at, ...thread, end: done, output },
    { kind: 'tool.response', at, ...parent, outcome: 'succeeded', content: 'found', fromThread: 'thr_1' },
  ]);
  const ends = [{}, { isCancelled: true }].map((how) => endOfThread(thread, { at, end: error, answer: '', ...how }));
  expect(ends.map(([end]) => end && 'output' in end)).toEqual([false, false]);
  expect(ends).toMatchObject([
    [{}, { outcome: 'failed' }],
    [{}, { outcome: 'cancelled' }],
  ]);
});
