import { expect, test } from 'vitest';
import { startable } from './sub-agents.ts';

test('a message starts at most 10 sub-agents, a turn 50, and those of depth 3 none', () => {
  expect([0, 1, 2, 3].map((depth) => startable(depth, 0))).toEqual([10, 10, 10, 0]);
  expect([40, 45, 50, 51].map((started) => startable(0, started))).toEqual([10, 5, 0, 0]);
});
