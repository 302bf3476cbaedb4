import { ApplicationFailure } from '@temporalio/activity';
import type { WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { CallModelInput, CallToolInput, CallToolResult, TurnResult, TurnStart } from '../../src/core/history.ts';
import type { ApprovalPolicy, ToolCall, ToolRoute } from '../../src/core/records/calls.ts';
import type { ModelMessage } from '../../src/core/records/message.ts';
import { NO_USAGE } from '../../src/core/records/usage.ts';
import type { CreateTurnCommand, SessionTurnsState } from '../../src/core/session.ts';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import type { TurnCommand } from '../../src/core/turn-command.ts';
import { newId } from '../../src/engine/new-id.ts';
import { cancelSession, cancelTurn, commandTurn, createTurn } from '../../workflows/messages.ts';
import { turnStart } from '../support/random-turn.ts';
import { startTimeSkipping, type TimeSkipping } from '../support/time-skipping.ts';

/** Waits of weeks, in the server's time. Turns continue as new after a few events. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

type ToolScript = (input: CallToolInput) => Promise<Partial<CallToolResult>> | Partial<CallToolResult>;

/** The messages of the model, and the actions of tools, by turn. */
const scripts = new Map<string, { messages: ToolCall[][]; tool: ToolScript }>();
/** The activities that workflows have called, and when: milliseconds since 1970. */
const calls: { name: string; at: number; id: string; input: object }[] = [];
const callsOf = (name: string, id: string) => calls.filter((call) => call.name === name && call.id === id);

/** Turns that other runs of their sessions have started, and that have ended. */
const ended = new Set<string>();

function modelCall(turnId: string, nth: number): { at: number; input: CallModelInput } {
  const found = callsOf('callModel', turnId)[nth] ?? expect.fail(`the model was not called ${nth + 1} times`);
  return { at: found.at, input: found.input as CallModelInput };
}

const NEW_SESSION: SessionTurnsState = { tip: null, open: false, closed: false, queue: [], newest: null };

let time: TimeSkipping;
beforeAll(async () => {
  const called = async (name: string, id: string, input: object): Promise<void> => {
    calls.push({ name, id, input, at: await time.now() });
  };
  time = await startTimeSkipping({
    callModel: async (input: CallModelInput) => {
      await called('callModel', input.turnId, input);
      const script = scripts.get(input.turnId);
      return {
        stamp: newId('req'),
        records: [await message(input, script?.messages.shift() ?? [])],
        outcome: ANSWERED,
      };
    },
    callTool: async (input: CallToolInput) => {
      await called('callTool', input.turnId, input);
      const result = await scripts.get(input.turnId)?.tool(input);
      return { stamp: newId('req'), records: [await response(input)], ...result };
    },
    archiveTurn: ({ turnId, ...input }) => called('archiveTurn', turnId, input),
    forceDelegate: ({ childSessionId, ...input }) => called('forceDelegate', childSessionId, input),
    stopDelegate: ({ childSessionId, ...input }) => called('stopDelegate', childSessionId, input),
    loadSession: () => Promise.resolve(NEW_SESSION),
    inspectTurn: async ({ turnId, sessionId }) => {
      await called('inspectTurn', turnId, { sessionId });
      return { turnId, sessionId, previousTurnId: null, sequence: 1, pending: [], open: !ended.has(turnId) };
    },
  });
});
afterAll(() => time[Symbol.asyncDispose]());

const ANSWERED = { status: 'answered' as const };

async function message({ messageId, threadId }: CallModelInput, toolCalls: ToolCall[]): Promise<ModelMessage> {
  return {
    kind: 'model.message',
    id: messageId,
    at: new Date(await time.now()).toISOString(),
    threadId,
    content: '',
    reasoning: '',
    refusal: '',
    toolCalls,
    finishReason: toolCalls.length > 0 ? 'tool_calls' : 'stop',
    usage: NO_USAGE,
  };
}

async function response({ threadId, toolCallId }: CallToolInput) {
  const at = new Date(await time.now()).toISOString();
  return { kind: 'tool.response' as const, at, threadId, toolCallId, outcome: 'succeeded' as const, content: 'done' };
}

function call(id: string, route: ToolRoute): ToolCall {
  const info = { type: 'mcp' as const, serverId: 's', serverName: 's', name: 'pay' };
  return { id, name: 'pay', arguments: '{}', info, route };
}

const asks = (policy: ApprovalPolicy): ToolRoute => {
  return { to: 'server', effect: 'once', approval: true, callHash: 'h', policy };
};

async function begin(
  messages: ToolCall[][],
  more: Partial<TurnStart> = {},
  { tool = () => ({}), maxEvents = 12 }: { tool?: ToolScript; maxEvents?: number } = {},
): Promise<{ turnId: string; handle: WorkflowHandle }> {
  const now = await time.now();
  const turnId = newId('turn', now);
  scripts.set(turnId, { messages: [...messages], tool });
  const start = turnStart({ turnId, createdAt: new Date(now).toISOString(), rules: 1, pause: 'wait', ...more });
  const options = { taskQueue: time.taskQueue, workflowId: turnWorkflowId(turnId), args: [start], memo: { maxEvents } };
  return { turnId, handle: await time.client.workflow.start('turn', options) };
}

const subject = { subjectId: 'ann', subjectType: 'user' as const, subjectSlug: 'ann' };

const send = ({ handle }: { handle: WorkflowHandle }, command: TurnCommand): Promise<void> =>
  handle.signal(commandTurn, command);

/** Allows a call, as one of several. */
const allow = (toolCallId: string, by = subject): TurnCommand => ({
  type: 'answer',
  id: newId('req'),
  subject: by,
  roles: [],
  mayDecide: true,
  mayRespond: true,
  answers: [{ type: 'user.tool_approval', threadId: 'main', toolCallId, approval: { status: 'allow' } }],
});

/** The log of a turn: what happened, how, and in which hour. */
function course(turnId: string): string[] {
  const log = time.log(turnId);
  const since = Date.parse(log[1]?.record.at ?? '');
  return log.slice(1).map(({ record }) => {
    const { kind, at } = record;
    const how = 'decision' in record ? ` ${record.decision}` : 'outcome' in record ? ` ${record.outcome}` : '';
    return `${Math.round((Date.parse(at) - since) / HOUR)} ${kind}${how}`;
  });
}

/** The workflow reports an entry before the server has the timers of the same task: time may not pass before that. */
async function untilLogged(turnId: string, entry: string): Promise<void> {
  await expect.poll(() => course(turnId)).toContain(entry);
  await expect.poll(() => isWorking(turnId)).toBe(false);
}

/** Whether a workflow task of a turn's newest run has not ended. */
async function isWorking(turnId: string): Promise<boolean> {
  const { events } = await time.client.workflow.getHandle(turnWorkflowId(turnId)).fetchHistory();
  const count = (pattern: RegExp): number =>
    (events ?? []).filter(({ attributes }) => pattern.test(attributes ?? '')).length;
  const ended = /^workflowTask(Completed|Failed|TimedOut)EventAttributes$/;
  return count(/^workflowTaskScheduledEventAttributes$/) > count(ended);
}

/** How many runs a turn has had before its last one. */
async function continuations(turnId: string): Promise<number> {
  let count = 0;
  for (let runId: string | undefined; ; count += 1) {
    const { events } = await time.client.workflow.getHandle(turnWorkflowId(turnId), runId).fetchHistory();
    const started = events?.[0]?.workflowExecutionStartedEventAttributes;
    if (!started?.continuedExecutionRunId) return count;
    runId = started.continuedExecutionRunId;
  }
}

const WEEK_LONG: ApprovalPolicy = {
  quorum: 2,
  expiresInSeconds: (7 * DAY) / SECOND,
  onExpiry: 'deny',
  escalate: { afterSeconds: DAY / SECOND, to: { subjects: ['boss'], roles: [] } },
};

const ASKED = ['0 model.message', '0 tool.approval_required', '0 turn.paused'];
/** Escalated after a day, allowed by one of two after two days, expired after a week. */
const EXPIRED = [...ASKED, '24 tool.decided escalated', '48 tool.decided allow', '168 tool.decided expired'];

test.each([
  ['deny', [...EXPIRED, '168 tool.response expired', '168 turn.resumed', '168 model.message'], 'done'],
  ['allow', [...EXPIRED, '168 turn.resumed', '168 tool.response succeeded', '168 model.message'], 'done'],
  ['end', [...EXPIRED, '168 tool.response expired', '168 turn.resumed'], 'error'],
] as const)('an approval is escalated after a day and expires after a week: %s', async (onExpiry, expected, status) => {
  const turn = await begin([[call('c1', asks({ ...WEEK_LONG, onExpiry }))]]);
  const { turnId, handle } = turn;
  await untilLogged(turnId, '0 turn.paused');
  await time.pass(2 * DAY);
  await send(turn, allow('c1'));
  await untilLogged(turnId, '48 tool.decided allow');
  await time.pass(6 * DAY);
  const result: TurnResult = await handle.result();
  expect(result.status).toBe(status);
  expect(course(turnId)).toEqual(expected);
  expect(await continuations(turnId)).toBeGreaterThan(2);
  expect(callsOf('callTool', turnId)).toHaveLength(onExpiry === 'allow' ? 1 : 0);
});

test('a turn ends when it has waited for answers for five days, also if one has come meanwhile', async () => {
  const limits = { ...turnStart().limits, actionSeconds: (5 * DAY) / SECOND };
  const turn = await begin([[call('c1', asks(WEEK_LONG))]], { limits });
  await untilLogged(turn.turnId, '0 turn.paused');
  await time.pass(2 * DAY);
  await send(turn, allow('c1'));
  await untilLogged(turn.turnId, '48 tool.decided allow');
  await time.pass(6 * DAY);
  expect(await turn.handle.result()).toMatchObject({ status: 'error', code: 'action_expired' });
  const { closeTime } = await turn.handle.describe();
  const asked = Date.parse(time.log(turn.turnId)[1]?.record.at ?? '');
  expect(Math.round(((closeTime?.getTime() ?? 0) - asked) / HOUR)).toBe(5 * 24);
  expect(await continuations(turn.turnId)).toBeGreaterThan(1);
});

test('a turn that is paused for weeks has as long to work as before', async () => {
  const work = (id: string) => call(id, { to: 'server', effect: 'retry', approval: false, callHash: 'h' });
  const busy = new Set<string>();
  const tool: ToolScript = ({ toolCallId }) => {
    if (busy.has(toolCallId)) return {};
    busy.add(toolCallId);
    throw ApplicationFailure.create({ message: 'busy', nextRetryDelay: '50 minutes' });
  };
  const limits = { ...turnStart().limits, seconds: HOUR / SECOND };
  const turn = await begin([[work('c1')], [work('c2')]], { limits }, { tool });
  const { turnId, handle } = turn;
  const deadline = (nth: number) => modelCall(turnId, nth).input.deadline;
  await expect.poll(() => busy.has('c1')).toBe(true);
  await time.pass(49 * MINUTE);
  await send(turn, { type: 'pause', id: newId('req'), subject });
  await untilLogged(turnId, '1 turn.paused');
  await time.pass(7 * DAY);
  // A worker does not see the pause.
  await handle.signal(cancelTurn, 'server-execution-timeout');
  await time.pass(14 * DAY);
  expect(callsOf('callModel', turnId)).toHaveLength(1);
  await send(turn, { type: 'resume', id: newId('req'), subject });
  await expect.poll(() => busy.has('c2')).toBe(true);
  expect(Math.round((deadline(1) - deadline(0)) / HOUR)).toBe((21 * DAY) / HOUR);
  await time.pass(5 * MINUTE);
  await handle.signal(cancelTurn, 'server-execution-timeout');
  await time.pass(10 * MINUTE);
  expect((await handle.describe()).status.name).toBe('RUNNING');
  await handle.signal(cancelTurn, 'server-execution-timeout');
  expect(await handle.result()).toEqual({ status: 'cancelled', reason: 'server-execution-timeout' });
  expect(await continuations(turnId)).toBeGreaterThan(0);
});

test('agents that are to answer have 30 seconds for it, after weeks of work', async () => {
  const sessions = [newId('ses'), newId('ses')];
  const to = (sessionId: string) => call(`to_${sessionId}`, { to: 'session', sessionId, callHash: 'h' });
  const turn = await begin([sessions.map(to)], {}, { tool: () => ({ records: [], isDelegated: true }), maxEvents: 45 });
  const { turnId, handle } = turn;
  const answer = (sessionId = ''): Promise<void> =>
    send(turn, {
      type: 'delegation',
      id: newId('req'),
      threadId: 'main',
      toolCallId: `to_${sessionId}`,
      sessionId,
      result: { content: 'an answer', outcome: 'succeeded' },
    });
  await untilLogged(turnId, '0 turn.paused');
  await time.pass(20 * DAY);
  expect(callsOf('forceDelegate', sessions[0] ?? '')).toEqual([]);
  await send(turn, { type: 'force_answer', id: newId('req'), subject });
  for (const one of sessions) await expect.poll(() => callsOf('forceDelegate', one)).not.toEqual([]);
  await time.pass(10 * SECOND);
  await answer(sessions[0]);
  await untilLogged(turnId, '480 tool.response succeeded');
  await time.pass(HOUR);
  expect(callsOf('stopDelegate', sessions[0] ?? '')).toEqual([]);
  const [forced] = callsOf('forceDelegate', sessions[1] ?? '');
  const stopped = callsOf('stopDelegate', sessions[1] ?? '');
  expect(stopped).toHaveLength(1);
  const grace = (stopped[0]?.at ?? 0) - (forced?.at ?? 0);
  expect(grace).toBeGreaterThanOrEqual(30 * SECOND);
  expect(grace).toBeLessThan(60 * SECOND);
  await answer(sessions[1]);
  expect(await handle.result()).toMatchObject({ status: 'done' });
  expect(await continuations(turnId)).toBeGreaterThan(0);
});

test('a turn in the queue begins when the one before has expired, with all of its time', async () => {
  const sessionId = newId('ses');
  const session = await time.client.workflow.start('session', {
    taskQueue: time.taskQueue,
    workflowId: sessionWorkflowId(sessionId),
    args: [{ sessionId }],
  });
  const limits = { ...turnStart().limits, seconds: HOUR / SECOND };
  const create = async (policy: ApprovalPolicy): Promise<string> => {
    const now = await time.now();
    const turnId = newId('turn', now);
    scripts.set(turnId, { messages: [[call('c1', asks(policy))]], tool: () => ({}) });
    const { sequence: _, previousTurnId: __, resumes: ___, sessionId: ____, ...start } = turnStart({ turnId, limits });
    const createdAt = new Date(now).toISOString();
    const command: CreateTurnCommand = {
      ...start,
      createdAt,
      pause: 'wait',
      onRunning: 'queue',
      previous: { turn: 'last' },
    };
    await session.executeUpdate(createTurn, { args: [command] });
    return turnId;
  };
  const first = await create({ ...WEEK_LONG, onExpiry: 'end' });
  await untilLogged(first, '0 turn.paused');
  const second = await create(WEEK_LONG);
  await time.pass(6 * DAY);
  expect(callsOf('callModel', second)).toEqual([]);
  await time.pass(9 * DAY);
  expect(await time.client.workflow.getHandle(turnWorkflowId(second)).result()).toMatchObject({ status: 'done' });
  expect(course(first).slice(-2)).toEqual(['168 tool.response expired', '168 turn.resumed']);
  expect(course(second)).toEqual([
    ...ASKED,
    '24 tool.decided escalated',
    '168 tool.decided expired',
    '168 tool.response expired',
    '168 turn.resumed',
    '168 model.message',
  ]);
  const begun = modelCall(second, 0);
  const { deadline, idleMs = 0, start } = begun.input;
  expect(start?.sequence).toBe(2);
  expect(Math.round((deadline - begun.at) / MINUTE)).toBe(60);
  expect(Math.round(idleMs / HOUR)).toBe(7 * 24);
  await session.terminate();
});

test('a session asks after a turn of an earlier run less and less often, and then once a minute', async () => {
  const [sessionId, turnId] = [newId('ses'), newId('turn', await time.now())];
  const tip = { turnId, sequence: 1, previousTurnId: null, pending: [] };
  const state: SessionTurnsState = { tip, open: true, closed: false, queue: [], newest: turnId };
  const session = await time.client.workflow.start('session', {
    taskQueue: time.taskQueue,
    workflowId: sessionWorkflowId(sessionId),
    args: [{ sessionId, state }],
  });
  await time.pass(HOUR);
  ended.add(turnId);
  await time.pass(DAY);
  const asked = callsOf('inspectTurn', turnId).map(({ at }) => at);
  for (const [nth, seconds] of [2, 4, 8, 16, 32, 60, 60, 60].entries()) {
    expect((asked[nth + 1] ?? 0) - (asked[nth] ?? 0)).toBeGreaterThanOrEqual(seconds * SECOND);
  }
  // Six, and one for each further minute; a slow machine takes longer for each.
  expect(asked.length).toBeGreaterThan(50);
  expect(asked.length).toBeLessThan(67);
  await session.terminate();
});

test('a session ends when 30 days have passed since its last command, although it has continued as new since', async () => {
  const sessionId = newId('ses');
  const since = await time.now();
  const session = await time.client.workflow.start('session', {
    taskQueue: time.taskQueue,
    workflowId: sessionWorkflowId(sessionId),
    args: [{ sessionId, state: NEW_SESSION, idle: { seconds: (30 * DAY) / SECOND, since } }],
    memo: { maxEvents: 8 },
  });
  const cancel = () => session.executeUpdate(cancelSession, { args: [{ close: false, upTo: 'turn_z' }] });
  await time.pass(20 * DAY);
  await cancel();
  await time.pass(29 * DAY);
  expect((await session.describe()).status.name).toBe('RUNNING');
  await time.pass(2 * DAY);
  const { status, closeTime, runId } = await session.describe();
  expect(runId).not.toBe(session.firstExecutionRunId);
  expect(status.name).toBe('COMPLETED');
  expect(Math.round(((closeTime?.getTime() ?? 0) - since) / HOUR)).toBe((50 * DAY) / HOUR);
});
