import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, expect, inject, test, vi } from 'vitest';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { late } from '../support/mcp-server.ts';
import { say, use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** The cost of turns in events and workflow tasks. The counts do not depend on the machine. */

let server: TestServer;
const bus = new InProcessBus();
const hint = vi.spyOn(bus, 'hint');
let connection: Connection;
let client: Client;
beforeAll(async () => {
  server = await startTestServer({
    bus,
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => late('seen') },
        { name: 'glance', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        { name: 'pay', annotations: { destructiveHint: true }, handler: () => 'paid' },
      ],
    },
  });
  connection = await Connection.connect({ address: inject('temporalAddress') });
  client = new Client({ connection, namespace: inject('temporalNamespace') });
});
afterAll(async () => {
  await connection.close();
  await server.stop();
});

/** The names of the events of a workflow's current run, without the prefix. */
async function eventsOf(workflowId: string): Promise<string[]> {
  const { events } = await client.workflow.getHandle(workflowId).fetchHistory();
  return (events ?? []).map(({ attributes }) => (attributes ?? '').replace(/EventAttributes$/, ''));
}

interface Cost {
  tasks: number;
  activities: number;
  timers: number;
  signals: number;
}

/** The events of a session, once it has handled the end of its last turn. */
async function settled({ sessionId }: Chat): Promise<string[]> {
  let events: string[] = [];
  const lastChanges = async () => {
    events = await eventsOf(sessionWorkflowId(sessionId));
    return events.filter((name) => /^(child|workflowTaskC)/.test(name)).slice(-2);
  };
  await expect.poll(lastChanges).toEqual(['childWorkflowExecutionCompleted', 'workflowTaskCompleted']);
  return events;
}

/** The events that a turn adds to the histories of a session that has had one. */
async function costOf(chat: Chat, work: () => Promise<string>): Promise<Cost> {
  const known = (await settled(chat)).length;
  const turnId = await work();
  const added = (await settled(chat)).slice(known);
  const all = [...added, ...(await eventsOf(turnWorkflowId(turnId)))];
  const count = (name: string) => all.filter((one) => one === name).length;
  return {
    tasks: count('workflowTaskCompleted'),
    activities: count('activityTaskScheduled'),
    timers: count('timerStarted'),
    signals: count('workflowExecutionSignaled'),
  };
}

async function run(chat: Chat, input: unknown): Promise<string> {
  const reader = chat.turn(input);
  await reader.done;
  return reader.turnId();
}

/** A session that has had a turn, so that it is loaded. */
async function warmChat(...scripts: Script[]): Promise<Chat> {
  const chat = await server.chat({ scripts: [say('Hello.'), ...scripts], spec: onTestServer });
  await run(chat, 'hello');
  return chat;
}

test('a plain turn has at most five workflow tasks, one activity, and neither timer nor signal', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two')] });
  await run(chat, 'first');
  const { tasks, ...rest } = await costOf(chat, () => run(chat, 'second'));
  expect(rest).toEqual({ activities: 1, timers: 0, signals: 0 });
  // Two of the session's may be one on a slow machine: the start of the turn and its end.
  expect(tasks).toBeLessThanOrEqual(5);
});

test('readers get a hint on each activity that returns, on recorded commands, and on the end', async () => {
  const hintsOf = (turnId: string) => hint.mock.calls.filter(([topic]) => topic === `growth:${turnId}`).length;
  const chat = await server.chat({
    scripts: [use({ name: 'look' }), use({ name: 'pay', id: 'call_pay' }), say('paid')],
    spec: { ...onTestServer, config: { pause: 'wait' } },
  });
  const reader = chat.turn('pay');
  await reader.type('turn.paused');
  const turnId = await reader.turnId();
  // Two model calls, a tool, and the request for the approval.
  expect(hintsOf(turnId)).toBe(4);
  await server.api.send('POST', `${chat.path}/actions`, { input: [approval] });
  await reader.done;
  // The approval, the tool, a model call, and the end.
  expect(hintsOf(turnId)).toBe(8);
});

test('a turn with one tool has two workflow tasks and two activities more', async () => {
  const chat = await warmChat(use({ name: 'look' }), say('seen'));
  const { tasks, ...rest } = await costOf(chat, () => run(chat, 'look'));
  expect(rest).toEqual({ activities: 3, timers: 0, signals: 0 });
  expect(tasks).toBeLessThanOrEqual(7);
});

test('a read-only tool that returns at once costs no activity, and the model call after it one workflow task', async () => {
  const chat = await warmChat(...Array.from({ length: 30 }, () => [use({ name: 'glance' }), say('seen')]).flat());
  const cost = async () => {
    const turn = await costOf(chat, () => run(chat, 'glance'));
    expect(turn.tasks).toBeLessThanOrEqual(4 + turn.activities);
    return turn;
  };
  // "At once" is a matter of milliseconds, which a busy machine may not have.
  await expect.poll(cost).toMatchObject({ activities: 2, timers: 0, signals: 0 });
});

test('a read-only tool costs an activity after a message that was tried again: it may have ended the worker', async () => {
  const quick = () => use({ name: 'glance' });
  const chat = await warmChat(quick(), say('seen'), (call) => call.fail(500, 'not now'), quick(), say('seen'));
  await run(chat, 'glance');
  expect(await costOf(chat, () => run(chat, 'glance'))).toMatchObject({ activities: 3 });
});

const approval = {
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: 'call_pay',
  approval: { status: 'allow' },
};

test('a turn that waits for an approval costs as much as a plain one, and the approved one a tool more', async () => {
  const chat = await warmChat(use({ name: 'pay', id: 'call_pay' }), say('paid'));
  const asking = await costOf(chat, () => run(chat, 'pay'));
  expect(asking).toMatchObject({ activities: 1, timers: 0, signals: 0 });
  expect(asking.tasks).toBeLessThanOrEqual(5);
  const approved = await costOf(chat, () => run(chat, [approval]));
  // It connects to the servers before the tool.
  expect(approved).toMatchObject({ activities: 3, timers: 0, signals: 0 });
  expect(approved.tasks).toBeLessThanOrEqual(7);
});

test('a turn that waits for an approval costs its tool, one signal, the index of its action, and no timer', async () => {
  const waiting = await server.chat({
    scripts: [say('Hello.'), use({ name: 'pay', id: 'call_pay' }), say('paid')],
    spec: { ...onTestServer, config: { pause: 'wait' } },
  });
  await run(waiting, 'hello');
  const { tasks, ...rest } = await costOf(waiting, async () => {
    const reader = waiting.turn('pay');
    await reader.type('turn.paused');
    const { status } = await server.api.send('POST', `${waiting.path}/actions`, { input: [approval] });
    expect(status).toBe(200);
    await reader.done;
    return reader.turnId();
  });
  // Two model calls and the tool; the inbox is told what waits, and what was decided.
  expect(rest).toEqual({ activities: 5, timers: 0, signals: 1 });
  expect(tasks).toBeLessThanOrEqual(10);
});
