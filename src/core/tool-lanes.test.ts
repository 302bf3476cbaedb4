import { expect, test } from 'vitest';
import { toolLanes } from './tool-lanes.ts';

test('a sub-agent runs fewer calls at once than the root agent, whose calls may run one by one', () => {
  expect(toolLanes({ isSubAgent: false })).toBe(50);
  expect(toolLanes({ isSubAgent: false, inSequence: true })).toBe(1);
  expect(toolLanes({ isSubAgent: true })).toBe(10);
  expect(toolLanes({ isSubAgent: true, inSequence: true })).toBe(10);
});
