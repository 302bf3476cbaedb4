import { Client, Connection } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { NativeConnection, Worker } from '@temporalio/worker';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { PendingCall } from '../../src/core/records/pending.ts';
import type { TurnStatus } from '../../src/engine/turn-sources.ts';
import { workflowBundle } from '../../src/temporal/workflow-bundle.ts';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { createTurn } from '../../workflows/messages.ts';
import type { session } from '../../workflows/session.ts';
import type { CreateTurnCommand, SessionTurnsState } from '../../src/core/session.ts';

/** The session's workflow alone. */

const namespace = inject('temporalNamespace');
const taskQueue = newId('req');
let connection: Connection;
let native: NativeConnection;
let client: Client;
let worker: Worker;
let running: Promise<void>;
/** The turns that exist before their session has a record of them. */
const known = new Map<string, TurnStatus>();

const refuse = () => Promise.reject(ApplicationFailure.nonRetryable('there is nothing here but sessions'));

beforeAll(async () => {
  connection = await Connection.connect({ address: inject('temporalAddress') });
  native = await NativeConnection.connect({ address: inject('temporalAddress') });
  client = new Client({ connection, namespace });
  worker = await Worker.create({
    connection: native,
    namespace,
    taskQueue,
    workflowBundle: await workflowBundle(loadConfig().cacheDir),
    // The turns that it starts end at once.
    activities: {
      inspectTurn: ({ turnId }: { turnId: string }) => Promise.resolve(known.get(turnId)),
      callTool: refuse,
      callModel: refuse,
    },
  });
  running = worker.run();
});
afterAll(async () => {
  worker.shutdown();
  await running;
  await native.close();
  await connection.close();
});

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
    limits: { iterations: 1, seconds: 60, toolSeconds: 1, toolHeartbeatSeconds: 1, subAgents: 5 },
  };
}

/** A session in this state. */
function startSession(sessionId: string, state: Pick<SessionTurnsState, 'tip' | 'open'>) {
  return client.workflow.start<typeof session>('session', {
    workflowId: sessionWorkflowId(sessionId),
    taskQueue,
    args: [{ sessionId, state: { ...state, closed: false, queue: [], newest: state.tip?.turnId ?? null } }],
  });
}

test('an approval is accepted before its session is notified of the end of the turn which asked for it', async () => {
  const sessionId = newId('ses');
  const [before, after] = [newId('turn', Date.now() - 1), newId('turn')];
  const call: PendingCall = {
    threadId: 'main',
    toolCallId: 'w1',
    needs: 'approval',
    source: { turnId: before, messageId: 'msg_1', stamp: 's', index: 0, run: { effect: 'once', callHash: '' } },
  };
  const tip = { turnId: before, previousTurnId: null, sequence: 1, pending: [] };
  known.set(before, { ...tip, sessionId, pending: [call], open: false });
  const handle = await startSession(sessionId, { tip, open: true });
  const command = commandOf(after, [
    { type: 'user.tool_approval', threadId: 'main', toolCallId: 'w1', approval: { status: 'allow' } },
  ]);
  // Its role may not cancel a running turn: the session must not take the turn for one.
  const accepted = await handle.executeUpdate(createTurn, { args: [{ ...command, sparesRunning: true }] });
  expect(accepted).toEqual({ turnId: after, previousTurnId: before, sequence: 2 });
  // The session accepts a turn before Temporal has started its workflow.
  await expect.poll(() => client.workflow.result(turnWorkflowId(after))).toMatchObject({ status: 'error' });
  await handle.terminate();
});

test('a command that was in flight for half a day is rejected: the records it refers to may be deleted', async () => {
  const sessionId = newId('ses');
  const handle = await startSession(sessionId, { tip: null, open: false });
  const sentAgo = (hours: number): CreateTurnCommand => ({
    ...commandOf(newId('turn'), [{ type: 'user.message', content: 'x' }]),
    createdAt: new Date(Date.now() - hours * 3_600_000).toISOString(),
  });
  const late = handle.executeUpdate(createTurn, { args: [sentAgo(12.1)] });
  await expect(late).rejects.toMatchObject({ cause: { type: 'request_expired' } });
  // Clocks may differ by much less than that.
  expect(await handle.executeUpdate(createTurn, { args: [sentAgo(11.9)] })).toMatchObject({ sequence: 1 });
  await handle.terminate();
});

test('a command that is repeated after half a day, because an operator has reset the session, finds its turn', async () => {
  const sessionId = newId('ses');
  const yesterday = Date.now() - 24 * 3_600_000;
  const [before, again] = [newId('turn', yesterday - 1), newId('turn', yesterday)];
  known.set(again, { turnId: again, sessionId, previousTurnId: before, sequence: 2, pending: [], open: false });
  const tip = { turnId: before, previousTurnId: null, sequence: 1, pending: [] };
  const handle = await startSession(sessionId, { tip, open: false });
  const message: CreateTurnCommand['input'] = [{ type: 'user.message', content: 'x' }];
  const command = { ...commandOf(again, message), createdAt: new Date(yesterday).toISOString() };
  expect(await handle.executeUpdate(createTurn, { args: [command] })).toMatchObject({ turnId: again, sequence: 2 });
  const next = commandOf(newId('turn'), message);
  const accepted = await handle.executeUpdate(createTurn, { args: [next] });
  expect(accepted).toMatchObject({ previousTurnId: again, sequence: 3 });
  await handle.terminate();
});

test('a turn that the session has no record of, but that exists, is not started again', async () => {
  const sessionId = newId('ses');
  const [before, there] = [newId('turn', Date.now() - 1), newId('turn')];
  known.set(there, { turnId: there, sessionId, previousTurnId: before, sequence: 2, pending: [], open: false });
  const tip = { turnId: before, previousTurnId: null, sequence: 1, pending: [] };
  const handle = await startSession(sessionId, { tip, open: false });
  // Whatever it runs: its id is taken.
  const turn = await client.workflow.start('session', {
    workflowId: turnWorkflowId(there),
    taskQueue,
    args: [{ sessionId, state: { tip: null, open: false, closed: false, queue: [], newest: null } }],
  });
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
});
