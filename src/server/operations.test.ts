import { expect, test } from 'vitest';
import type { WorkflowExecution, DescribedActivity, WorkflowTask } from '../temporal/describe-workflow.ts';
import { isStuck } from './operations.ts';

const NOW = Date.parse('2026-01-01T12:00:00Z');
const JUST_NOW = '2026-01-01T11:59:01Z';
const LONG_AGO = '2026-01-01T11:58:59Z';

function execution(part: { workflowTask?: WorkflowTask; activity?: Partial<DescribedActivity> }): WorkflowExecution {
  const { workflowTask, activity } = part;
  const pending = {
    activityId: '1',
    name: 'callModel',
    state: 'scheduled',
    attempt: 1,
    scheduledAt: JUST_NOW,
    attempts: [],
  };
  return {
    workflowId: 'turn/1',
    runId: '1',
    status: 'running',
    startedAt: LONG_AGO,
    closedAt: undefined,
    historyEvents: 10,
    historyBytes: 1000,
    pendingActivities: activity
      ? [{ ...pending, startedAt: undefined, heartbeatAt: undefined, worker: undefined, ...activity }]
      : [],
    ...(workflowTask && { workflowTask }),
  };
}

test.each([
  ['nothing pending', false, {}],
  ['a new task', false, { workflowTask: { state: 'scheduled', attempt: 1, since: JUST_NOW } }],
  ['a task that no worker takes', true, { workflowTask: { state: 'scheduled', attempt: 1, since: LONG_AGO } }],
  ['a task at a worker', false, { workflowTask: { state: 'started', attempt: 1, since: LONG_AGO } }],
  ['a task that failed twice', true, { workflowTask: { state: 'scheduled', attempt: 3, since: JUST_NOW } }],
  ['a new activity', false, { activity: {} }],
  ['an activity that no worker takes', true, { activity: { scheduledAt: LONG_AGO } }],
  ['an activity that runs', false, { activity: { state: 'started', scheduledAt: LONG_AGO } }],
  ['an activity whose retry is due later', false, { activity: { attempt: 5, scheduledAt: '2026-01-01T12:05:00Z' } }],
])('a workflow with %s is stuck: %s', (_, stuck, part) => {
  expect(isStuck(execution(part), NOW)).toBe(stuck);
});
