import { expect, test } from 'vitest';
import { behindWaiting, isAnyActive, type TrackedCall } from './tracked-call.ts';

/** The calls of a message to one server, in their order: `r` only reads. */
function callsOf(...calls: [name: string, state: TrackedCall['state']][]): Map<string, TrackedCall> {
  return new Map(
    calls.map(([name, state], index) => {
      const order = { server: 's', ...(name.startsWith('r') && { isReadOnly: true as const }) };
      const run = { effect: 'once' as const, callHash: name, order };
      const source = { turnId: 'turn_1', messageId: 'm', stamp: 's', index, run };
      return [name, { state, source, votes: [] }];
    }),
  );
}

const behind = (calls: Map<string, TrackedCall>) => behindWaiting(calls).map(([name]) => name);

test('behind a call that waits are those that it holds, and those that these hold', () => {
  expect(behind(callsOf(['r1', 'waiting'], ['w2', 'running'], ['r3', 'running']))).toEqual(['w2', 'r3']);
  expect(behind(callsOf(['r1', 'waiting'], ['r2', 'running'], ['w3', 'allowed']))).toEqual(['w3']);
  expect(behind(callsOf(['w1', 'running'], ['w2', 'running'], ['w3', 'waiting'], ['r4', 'allowed']))).toEqual(['r4']);
  expect(behind(callsOf(['w1', 'settled'], ['w2', 'running']))).toEqual([]);
});

test('a call that runs is active unless it is held', () => {
  expect(isAnyActive([...callsOf(['w1', 'waiting'], ['w2', 'running']).values()])).toBe(false);
  expect(isAnyActive([...callsOf(['r1', 'waiting'], ['r2', 'allowed']).values()])).toBe(true);
  expect(isAnyActive([...callsOf(['w1', 'settled'], ['w2', 'running']).values()])).toBe(true);
});
