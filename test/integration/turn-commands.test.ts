import { Client, Connection } from '@temporalio/client';
import { NativeConnection, Worker } from '@temporalio/worker';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import type { CallModelInput, CallModelResult, TurnStart } from '../../src/core/history.ts';
import type { ModelMessage } from '../../src/core/records/message.ts';
import { subjectNamed } from '../../src/core/subject.ts';
import type { TurnCommand } from '../../src/core/turn-command.ts';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import { newId } from '../../src/engine/new-id.ts';
import { workflowBundle } from '../../src/temporal/workflow-bundle.ts';
import { commandTurn } from '../../workflows/messages.ts';
import type { turn } from '../../workflows/turn.ts';
import { eventually } from '../support/eventually.ts';

/** The turn's workflow alone: while no worker runs workflows, results and commands arrive for the same task. */

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

const ann = subjectNamed('ann');

function startOf(turnId: string): TurnStart {
  return {
    turnId,
    sessionId: newId('ses'),
    sequence: 1,
    previousTurnId: null,
    createdAt: new Date().toISOString(),
    createdBy: ann,
    owner: { subjectId: 'ann', draftRoles: null },
    input: [{ type: 'user.message', content: 'go' }],
    title: null,
    specHash: '',
    hasServers: false,
    limits: { iterations: 5, seconds: 600, toolSeconds: 60, toolHeartbeatSeconds: 60, subAgents: 5 },
  };
}

function messageOf(input: CallModelInput, toolCalls: ModelMessage['toolCalls']): CallModelResult {
  const message: ModelMessage = {
    kind: 'model.message',
    id: input.messageId,
    at: input.createdAt,
    threadId: input.threadId,
    content: 'Well.',
    refusal: '',
    reasoning: '',
    toolCalls,
    finishReason: toolCalls.length > 0 ? 'tool_calls' : 'stop',
  };
  return { outcome: { status: 'answered' }, records: [message], stamp: newId('req') };
}

const question: ModelMessage['toolCalls'][number] = {
  id: 'q1',
  name: 'ask_user_question',
  arguments: '{}',
  info: { type: 'system', name: 'ask_user_question' },
  route: { to: 'client' },
};

async function run<T>(worker: Worker, during: () => Promise<T>): Promise<T> {
  const running = worker.run();
  try {
    return await during();
  } finally {
    worker.shutdown();
    await running;
  }
}

/** Runs a turn whose first model call ends, with `toolCalls`, in the same workflow task as `command` arrives. */
async function runWith(command: TurnCommand, toolCalls: ModelMessage['toolCalls'], start: Partial<TurnStart>) {
  const turnId = newId('turn');
  /** By the id of the message: a call has several attempts on a machine that is too slow for its heartbeats. */
  const calls = new Map<string, CallModelInput>();
  const responseOptions = Promise.withResolvers<void>();
  const activities = await Worker.create({
    connection: native,
    namespace,
    taskQueue,
    activities: {
      archiveTurn: () => Promise.resolve(),
      callModel: async (input: CallModelInput): Promise<CallModelResult> => {
        calls.set(input.messageId, input);
        const [first] = calls.keys();
        if (input.messageId !== first) return messageOf(input, []);
        await responseOptions.promise;
        return messageOf(input, toolCalls);
      },
    },
  });
  const bundle = await workflowBundle(loadConfig().cacheDir);
  const workflows = () => Worker.create({ connection: native, namespace, taskQueue, workflowBundle: bundle });
  return run(activities, async () => {
    const handle = await client.workflow.start<typeof turn>('turn', {
      workflowId: turnWorkflowId(turnId),
      taskQueue,
      args: [{ ...startOf(turnId), ...start }],
    });
    await run(await workflows(), () => eventually(() => expect(calls.size).toBe(1)));
    responseOptions.resolve();
    await eventually(async () => {
      const { events } = await handle.fetchHistory();
      expect(events?.some((event) => event.activityTaskCompletedEventAttributes)).toBe(true);
    });
    await handle.signal(commandTurn, command);
    const result = await run(await workflows(), () => handle.result());
    return { result, readUpTo: [...calls.values()].map(({ upTo }) => upTo) };
  });
}

test('a command that arrives with the result it answers is accepted: results come first', async () => {
  const command: TurnCommand = {
    type: 'answer',
    id: newId('req'),
    subject: ann,
    roles: ['user'],
    mayDecide: true,
    mayRespond: true,
    answers: [{ type: 'user.tool_response', threadId: 'main', toolCallId: 'q1', content: 'because' }],
  };
  const { result, readUpTo } = await runWith(command, [question], { pause: 'wait' });
  expect(result).toEqual({ status: 'done', pending: [] });
  // The turn's start, the message, the request for an answer, and the answer.
  expect(readUpTo).toEqual([1, 4]);
});

test('a message that arrives with the last result is answered: the turn calls its model again', async () => {
  const command: TurnCommand = { type: 'steer', id: newId('req'), subject: ann, sessionId: 's', messages: ['and?'] };
  const { result, readUpTo } = await runWith(command, [], {});
  expect(result).toEqual({ status: 'done', pending: [] });
  // The turn's start, the message, and the one that arrived.
  expect(readUpTo).toEqual([1, 3]);
});

test('the author of a message to a turn has asked for the call on which the turn ends', async () => {
  const subject = subjectNamed('bob');
  const command: TurnCommand = { type: 'steer', id: newId('req'), subject, sessionId: 's', messages: ['and?'] };
  const policy = { quorum: 1, onExpiry: 'deny' as const, excludeRequester: true as const };
  const decided = { approval: true, callHash: 'h', policy, requesters: ['ann'] };
  const call = {
    ...question,
    id: 'p1',
    name: 'pay',
    route: { to: 'server' as const, effect: 'once' as const, ...decided },
  };
  const { result } = await runWith(command, [call], {});
  expect(result).toMatchObject({ status: 'done', pending: [{ toolCallId: 'p1', requesters: ['ann', 'bob'] }] });
});
