import { expect, test } from 'vitest';
import type { Call } from './call.ts';
import { KERNEL } from './call-order.ts';
import type { ActivityResult } from './history.ts';
import { beginAgain, lostInSandbox } from './sandbox.ts';
import { newThread, type Threads } from './threads.ts';

const AT = '2026-11-28T08:00:00.000Z';

const RUN = { effect: 'once' as const, callHash: 'h', inSandbox: true as const, order: { server: KERNEL } };
const source = { turnId: 'turn_1', messageId: 'msg_1', stamp: 's', index: 0, run: RUN };
const key = { threadId: 'main', toolCallId: 'cell' };
/** A cell that runs. */
const CELL: Call = { ...key, state: 'running', hasBegun: true, source, votes: [] };

const running = (call: Call): Threads => new Map([['main', newThread({ calls: [call] })]]);
const cellOf = (threads: Threads): Call | undefined => threads.get('main')?.calls.get('cell');

test('a call whose host is gone is ready as if it had not begun, until the third host is lost', () => {
  const threads = running(CELL);
  const { hasBegun: _, ...unbegun } = CELL;
  for (const lostHosts of [1, 2]) {
    expect(beginAgain(threads, key)).toBe(true);
    expect(cellOf(threads)).toStrictEqual({ ...unbegun, state: 'ready', lostHosts });
  }
  const last = running({ ...CELL, lostHosts: 2 });
  expect(beginAgain(last, key)).toBe(false);
  expect(cellOf(last)).toStrictEqual({ ...CELL, lostHosts: 2 });
});

test('a call outside of the sandbox has no host of a kernel, and does not begin again', () => {
  const { inSandbox: _, ...run } = RUN;
  const call = { ...CELL, source: { ...source, run } };
  const threads = running(call);
  expect(beginAgain(threads, key)).toBe(false);
  expect(cellOf(threads)).toStrictEqual(call);
});

test('a call that its thread does not have, or whose thread is done, does not begin again', () => {
  const threads = running(CELL);
  expect(beginAgain(threads, { ...key, toolCallId: 'other' })).toBe(false);
  expect(beginAgain(threads, { ...key, threadId: 'thr_1' })).toBe(false);
  expect([...(threads.get('main')?.calls.values() ?? [])]).toEqual([CELL]);
});

type Lost = Exclude<ActivityResult, { how: 'completed' }>;

test.each<[string, 'once' | 'retry', Lost, string, string | undefined, RegExp]>([
  ['no host has begun', 'once', { how: 'timed_out', isUnstarted: true }, 'failed', 'not_started', /was not executed/],
  ['the turn cancels before it begins', 'once', { how: 'cancelled', started: false }, 'cancelled', undefined, /ended/],
  ['fails', 'once', { how: 'failed', message: 'no disk' }, 'failed', undefined, /^The tool call failed: no disk$/],
  ['its host loses', 'once', { how: 'timed_out' }, 'unknown_outcome', 'lost', /may or may not.* variables .* are lost/],
  ['its host loses', 'retry', { how: 'timed_out' }, 'failed', 'lost', /did not answer/],
  ['its host does not stop', 'once', { how: 'cancelled', started: true }, 'unknown_outcome', 'lost', /may or may not/],
  ['its host does not stop', 'retry', { how: 'cancelled', started: true }, 'failed', 'lost', /kernel/],
])('a call in the sandbox that %s (%s) has a result that says so', (_, effect, end, outcome, exit, content) => {
  const call = { ...key, source: { ...source, run: { ...RUN, effect } } };
  const response = lostInSandbox(call, end, AT);
  expect(response).toMatchObject({ kind: 'tool.response', at: AT, ...key, outcome });
  expect(response.execution?.exit).toBe(exit);
  expect(response.content).toMatch(content);
});
