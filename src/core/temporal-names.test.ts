import { expect, test } from 'vitest';
import * as names from './temporal-names.ts';

const UUID = '0193a4f2-7c1e-7d2a-9b3f-2f6f0f7d1a5e';

test('an id of a workflow names what it runs, and nothing of another kind', () => {
  const ids = [
    names.sessionWorkflowId('ses_1'),
    names.turnWorkflowId('turn_1'),
    names.deleteSessionWorkflowId('ses_2'),
    `${names.scheduledRunWorkflowId(UUID)}-2026-12-01T08:00:00Z`,
    `other-${names.scheduledRunWorkflowId(UUID)}`,
    names.temporalScheduleId(UUID),
  ];
  expect(ids.map(names.sessionIdOf)).toEqual(['ses_1', ...Array.from({ length: 5 })]);
  expect(ids.map(names.turnIdOf)).toEqual([undefined, 'turn_1', ...Array.from({ length: 4 })]);
  expect(ids.map(names.deletedSessionIdOf)).toEqual([undefined, undefined, 'ses_2', ...Array.from({ length: 3 })]);
  expect(ids.map(names.scheduleIdOf)).toEqual([...Array.from({ length: 3 }), UUID, undefined, undefined]);
});
