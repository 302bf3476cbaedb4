import { Client, Connection } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { NativeConnection, Worker } from '@temporalio/worker';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { PendingCall } from '../../src/core/records.ts';
import type { TurnStatus } from '../../src/engine/turn-status.ts';
import { workflowBundle } from '../../src/temporal/workflow-bundle.ts';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { createTurn, turnEnding } from '../../workflows/messages.ts';
import type { session } from '../../workflows/session.ts';
import type { CreateTurnCommand, SessionState } from '../../src/core/session.ts';

/** The session's workflow alone: messages that are sent while no worker runs arrive together. */

const namespace = inject('temporalNamespace');
const taskQueue = newId('req');
let connection: Connection;
let native: NativeConnection;
let client: Client;
beforeAll(async () => {
  connection = await Connection.connect({ address: inject('temporalAddress') });
  native = await NativeConnection.connect({ address: inject('temporalAddress') });
  client = new Client({ connection, namespace });
});
afterAll(async () => {
  await native.close();
  await connection.close();
});

/** The turns whose archiving failed finally, once per failure. */
const givenUp: string[] = [];
const unarchivable = new Set<string>();

function archiveTurn({ turnId }: { turnId: string }): Promise<void> {
  if (!unarchivable.has(turnId)) return Promise.resolve();
  givenUp.push(turnId);
  throw ApplicationFailure.nonRetryable('its workers were lost');
}

/** The turns that exist before their session knows of them. */
const known = new Map<string, TurnStatus>();

const refuse = () => Promise.reject(ApplicationFailure.nonRetryable('there is nothing here but sessions'));

async function startWorker(): Promise<{ stop: () => Promise<void> }> {
  const worker = await Worker.create({
    connection: native,
    namespace,
    taskQueue,
    workflowBundle: await workflowBundle(loadConfig().cacheDir),
    // The turns that it starts end at once.
    activities: {
      archiveTurn,
      inspectTurn: ({ turnId }: { turnId: string }) => Promise.resolve(known.get(turnId)),
      callTool: refuse,
      callModel: refuse,
    },
    stickyQueueScheduleToStartTimeout: '1 second',
  });
  const running = worker.run();
  return {
    stop: async () => {
      worker.shutdown();
      await running;
    },
  };
}

function commandOf(turnId: string, input: CreateTurnCommand['input']): CreateTurnCommand {
  return {
    turnId,
    previous: { turn: 'last' },
    createdAt: new Date().toISOString(),
    createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
    owner: { subjectId: 'ann', draftRoles: null },
    input,
    title: null,
    specHash: '',
    hasServers: false,
    limits: { iterations: 1, seconds: 60, toolSeconds: 1, toolHeartbeatSeconds: 1 },
  };
}

/** A session in this state. */
function startSession(sessionId: string, state: Pick<SessionState, 'tip' | 'open'>) {
  return client.workflow.start<typeof session>('session', {
    workflowId: sessionWorkflowId(sessionId),
    taskQueue,
    args: [{ sessionId, state: { ...state, closed: false, unarchived: [] } }],
  });
}

test('an approval that arrives together with the end of the turn that asked for it is accepted', async () => {
  const sessionId = newId('ses');
  const [before, after] = [newId('turn', Date.now() - 1), newId('turn')];
  const call: PendingCall = {
    threadId: 'main',
    toolCallId: 'w1',
    needs: 'approval',
    source: { turnId: before, messageId: 'msg_1', stamp: 's', index: 0, run: { effect: 'once', callHash: '' } },
  };
  const tip = { turnId: before, previousTurnId: null, sequence: 1, pending: [] };
  const handle = await startSession(sessionId, { tip, open: true });
  const first = await startWorker();
  await expect.poll(async () => (await handle.describe()).historyLength, { timeout: 20_000 }).toBeGreaterThan(3);
  await first.stop();

  await handle.signal(turnEnding, { turnId: before, pending: [call] });
  const command = commandOf(after, [
    { type: 'user.tool_approval', threadId: 'main', toolCallId: 'w1', approval: { status: 'allow' } },
  ]);
  const accepted = handle.executeUpdate(createTurn, { args: [command] });
  const second = await startWorker();
  expect(await accepted).toEqual({ turnId: after, previousTurnId: before, sequence: 2 });
  expect(await client.workflow.result(turnWorkflowId(after))).toMatchObject({ status: 'error' });
  await handle.terminate();
  await second.stop();
});

test('a command that was in flight for half a day is rejected: the records it refers to may be deleted', async () => {
  const sessionId = newId('ses');
  const handle = await startSession(sessionId, { tip: null, open: false });
  const worker = await startWorker();
  const sentAgo = (hours: number): CreateTurnCommand => ({
    ...commandOf(newId('turn'), [{ type: 'user.message', content: 'x' }]),
    createdAt: new Date(Date.now() - hours * 3_600_000).toISOString(),
  });
  const late = handle.executeUpdate(createTurn, { args: [sentAgo(12.1)] });
  await expect(late).rejects.toMatchObject({ cause: { type: 'request_expired' } });
  // Clocks may differ by much less than that.
  expect(await handle.executeUpdate(createTurn, { args: [sentAgo(11.9)] })).toMatchObject({ sequence: 1 });
  await handle.terminate();
  await worker.stop();
});

test('a command that is repeated after half a day, because an operator has reset the session, finds its turn', async () => {
  const sessionId = newId('ses');
  const yesterday = Date.now() - 24 * 3_600_000;
  const [before, again] = [newId('turn', yesterday - 1), newId('turn', yesterday)];
  known.set(again, { turnId: again, sessionId, previousTurnId: before, sequence: 2, pending: [], open: false });
  const tip = { turnId: before, previousTurnId: null, sequence: 1, pending: [] };
  const handle = await startSession(sessionId, { tip, open: false });
  const worker = await startWorker();
  const message: CreateTurnCommand['input'] = [{ type: 'user.message', content: 'x' }];
  const command = { ...commandOf(again, message), createdAt: new Date(yesterday).toISOString() };
  expect(await handle.executeUpdate(createTurn, { args: [command] })).toMatchObject({ turnId: again, sequence: 2 });
  const next = commandOf(newId('turn'), message);
  const accepted = await handle.executeUpdate(createTurn, { args: [next] });
  expect(accepted).toMatchObject({ previousTurnId: again, sequence: 3 });
  await handle.terminate();
  await worker.stop();
});

test('a turn that the session does not know, but that exists, is not started again', async () => {
  const sessionId = newId('ses');
  const [before, there] = [newId('turn', Date.now() - 1), newId('turn')];
  known.set(there, { turnId: there, sessionId, previousTurnId: before, sequence: 2, pending: [], open: false });
  const tip = { turnId: before, previousTurnId: null, sequence: 1, pending: [] };
  const handle = await startSession(sessionId, { tip, open: false });
  // Whatever it runs: its id is taken.
  const turn = await client.workflow.start('session', {
    workflowId: turnWorkflowId(there),
    taskQueue,
    args: [{ sessionId, state: { tip: null, open: false, closed: false, unarchived: [] } }],
  });
  const worker = await startWorker();
  const command = commandOf(there, [{ type: 'user.message', content: 'x' }]);
  const accepted = await handle.executeUpdate(createTurn, { args: [command] });
  expect(accepted).toEqual({ turnId: there, previousTurnId: before, sequence: 2 });
  const next = commandOf(newId('turn'), command.input);
  expect(await handle.executeUpdate(createTurn, { args: [next] })).toMatchObject({
    previousTurnId: there,
    sequence: 3,
  });
  await turn.terminate();
  await handle.terminate();
  await worker.stop();
});

test('a turn whose archiving failed finally is not kept by its session: it is left to the housekeeping', async () => {
  const sessionId = newId('ses');
  const turnId = newId('turn');
  unarchivable.add(turnId);
  const tip = { turnId, previousTurnId: null, sequence: 1, pending: [] };
  const handle = await startSession(sessionId, { tip, open: true });
  const worker = await startWorker();
  await handle.signal(turnEnding, { turnId, pending: [] });
  await expect.poll(() => givenUp).toEqual([turnId]);
  // A session that still had to archive it would not continue as new.
  const archivedAgain = async () => {
    await handle.signal(turnEnding, { turnId, pending: [] });
    return givenUp.length;
  };
  await expect.poll(archivedAgain).toBeGreaterThan(1);
  await handle.terminate();
  await worker.stop();
});
