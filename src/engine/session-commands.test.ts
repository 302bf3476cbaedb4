import { WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError, type Client } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import { createTurnCommand } from '../../test/support/create-turn-command.ts';
import { SessionCommands } from './session-commands.ts';

const CREATION = { turnId: 'turn_1', previousTurnId: null, sequence: 1 };

/** Commands whose responses are lost. `outcome` is what a look-up of the Update finds. */
function commandsWith(outcome: () => Promise<unknown>) {
  const asked: unknown[] = [];
  const client = {
    connection: { withDeadline: (_: number, call: () => unknown) => call() },
    workflow: {
      executeUpdateWithStart: () => Promise.reject(new WorkflowUpdateRPCTimeoutOrCancelledError('no response')),
      getHandle: (workflowId: string) => ({
        getUpdateHandle: (updateId: string) => ({
          result: () => {
            asked.push([workflowId, updateId]);
            return outcome();
          },
        }),
      }),
    },
  };
  const commands = new SessionCommands({
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the methods that commands call
    client: client as unknown as Client,
    taskQueue: 'q',
    log: pino({ level: 'silent' }),
  });
  return { commands, asked };
}

const refusal = new WorkflowUpdateFailedError('failed', ApplicationFailure.nonRetryable('it is', 'session_closed'));

test.each<[string, () => Promise<unknown>, object]>([
  ['the turn was created', () => Promise.resolve(CREATION), CREATION],
  ['it was rejected', () => Promise.reject(refusal), { code: 'session_closed' }],
  ['nothing is known of it', () => Promise.reject(new Error('unavailable')), { code: 'unavailable' }],
])('the outcome of a turn whose response was lost is looked up: %s', async (_, outcome, expected) => {
  const { commands, asked } = commandsWith(outcome);
  const created = commands.createTurn('ses_1', createTurnCommand('turn_1'));
  expect(await created.catch((error: unknown) => error)).toMatchObject(expected);
  expect(asked).toEqual([['session/ses_1', 'turn_1']]);
});

test('a cancel whose response was lost is unknown: a repetition cancels nothing more', async () => {
  const { commands, asked } = commandsWith(() => Promise.resolve(undefined));
  await expect(commands.cancel('ses_1', { close: false, upTo: 'turn_1' })).rejects.toMatchObject({
    code: 'unavailable',
  });
  expect(asked).toEqual([]);
});
