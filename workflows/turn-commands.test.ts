import { defaultPayloadConverter } from '@temporalio/common';
import { expect, test } from 'vitest';
import type { TurnCommand } from '../src/core/turn-command.ts';
import { ActivatedWorkflow, toPayload, type Job } from '../test/support/activated-workflow.ts';
import { commandTurn } from './messages.ts';

test.each<[string, (jobs: Job[]) => Job[]]>([
  ['in the order of the SDK, signals first', (jobs) => jobs],
  ['in the other order', (jobs) => jobs.toReversed()],
])('all that follows from the results of a task comes before its commands: %s', async (_name, inOrder) => {
  await using turn = await ActivatedWorkflow.create('order');
  const [first] = await turn.activate({ initializeWorkflow: { workflowType: 'order' } });
  const seq = first?.scheduleActivity?.seq ?? null;
  const command: Pick<TurnCommand, 'type'> = { type: 'pause' };
  const jobs: Job[] = [
    { signalWorkflow: { signalName: commandTurn.name, input: [toPayload(command)] } },
    { resolveActivity: { seq, result: { completed: {} } } },
  ];
  // In the same task also what waits for the commands continues: here the workflow ends.
  const [end] = await turn.activate(...inOrder(jobs));
  const result = end?.completeWorkflowExecution?.result;
  expect(result && defaultPayloadConverter.fromPayload(result)).toEqual(['result', 'pause']);
});
