import { defaultPayloadConverter } from '@temporalio/common';
import { expect, test } from 'vitest';
import { ActivatedWorkflow, toPayload, type Job } from '../test/support/activated-workflow.ts';
import { messageWith, modelMessage } from '../test/support/model-message.ts';
import { continuation, turnStart } from '../test/support/random-turn.ts';
import type { TurnStart } from '../src/core/history.ts';
import type { ToolRoute } from '../src/core/records/calls.ts';
import type { CancelReason } from '../src/core/records/turn.ts';
import { TurnActions } from '../src/core/turn-actions.ts';
import { cancelTurn, commandTurn } from './messages.ts';

type Commands = Awaited<ReturnType<ActivatedWorkflow['activate']>>;

const IN_TIME = { createdAt: '2026-11-21T08:00:00.000Z' };
const RUN: ToolRoute = { to: 'server', effect: 'retry', approval: false, callHash: 'h' };
const ANSWERED = { stamp: 's', outcome: { status: 'answered' } };

/** Starts a turn. Returns it, and what its first task begins. */
async function begin(start: Partial<TurnStart>, ...jobs: Job[]): Promise<[ActivatedWorkflow, Commands]> {
  const turn = await ActivatedWorkflow.create('turn');
  const input = [toPayload(turnStart({ ...IN_TIME, ...start }))];
  return [turn, await turn.activate({ initializeWorkflow: { workflowType: 'turn', arguments: input } }, ...jobs)];
}

function activitiesIn(commands: Commands): string[] {
  return commands.flatMap(({ scheduleActivity }) => scheduleActivity?.activityType ?? []);
}

function scheduledIn(commands: Commands, activityType: string): NonNullable<Commands[number]['scheduleActivity']> {
  const found = commands.find(({ scheduleActivity }) => scheduleActivity?.activityType === activityType);
  if (!found?.scheduleActivity) throw new Error(`no ${activityType} was scheduled`);
  return found.scheduleActivity;
}

function seqOf(commands: Commands, activityType: string): number {
  return scheduledIn(commands, activityType).seq ?? 0;
}

function inputOf(commands: Commands, activityType: string): unknown {
  const [input] = scheduledIn(commands, activityType).arguments ?? [];
  return input && defaultPayloadConverter.fromPayload(input);
}

function resolved(seq: number, result: object): Job {
  return { resolveActivity: { seq, result: { completed: { result: toPayload(result) } } } };
}

function sent(command: object): Job {
  return { signalWorkflow: { signalName: commandTurn.name, input: [toPayload(command)] } };
}

function cancelled(reason: CancelReason): Job {
  return { signalWorkflow: { signalName: cancelTurn.name, input: [toPayload(reason)] } };
}

function isCancelling(commands: Commands): boolean {
  return commands.some(({ requestCancelActivity }) => requestCancelActivity);
}

function resultIn(commands: Commands): unknown {
  const result = commands.find((one) => one.completeWorkflowExecution)?.completeWorkflowExecution?.result;
  return result && defaultPayloadConverter.fromPayload(result);
}

test.each<[string, (jobs: Job[]) => Job[]]>([
  ['in the order of the SDK, signals first', (jobs) => jobs],
  ['in the other order', (jobs) => jobs.toReversed()],
])('all that follows from the results of a task comes before its commands: %s', async (_name, inOrder) => {
  const [running, first] = await begin({ pause: 'wait' });
  await using turn = running;
  const answer = { type: 'user.tool_approval', threadId: 'main', toolCallId: 'call_0', approval: { status: 'allow' } };
  const subject = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const caller = { subject, roles: [], mayRespond: true, mayDecide: true, owner: 'ann' };
  const records = [messageWith({ ...RUN, approval: true })];
  const jobs: Job[] = [
    sent({ type: 'answer', id: 'req_1', answers: [answer], ...caller }),
    resolved(seqOf(first, 'callModel'), { ...ANSWERED, records }),
  ];
  // The call was asked about and approved before it begins.
  expect(activitiesIn(await turn.activate(...inOrder(jobs)))).toEqual(['archiveTurn', 'callTool']);
});

test('a turn that is cancelled ends when what runs has ended', async () => {
  const [running, first] = await begin({});
  await using turn = running;
  expect(await turn.sinkCalls()).toContain('speculation.modelCalled');
  const message = messageWith(RUN, RUN);
  const second = await turn.activate(resolved(seqOf(first, 'callModel'), { ...ANSWERED, records: [message] }));
  expect(activitiesIn(second)).toEqual(['callTool', 'callTool']);
  const third = await turn.activate(cancelled('client-cancelled'));
  expect(third.filter(({ requestCancelActivity }) => requestCancelActivity)).toHaveLength(2);
  expect(resultIn(third)).toBeUndefined();
  const seqs = second.flatMap(({ scheduleActivity }) => scheduleActivity?.seq ?? []);
  const stopped = (seq: number): Job => ({ resolveActivity: { seq, result: { cancelled: { failure: CANCELLED } } } });
  expect(resultIn(await turn.activate(stopped(seqs[0]!)))).toBeUndefined();
  expect(resultIn(await turn.activate(stopped(seqs[1]!)))).toEqual({
    status: 'cancelled',
    reason: 'client-cancelled',
  });
});

const ANN = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };

const CANCELLED = { message: 'cancelled', canceledFailureInfo: {} };

test('a result that the log does not accept ends the turn with an error, and fails no workflow task', async () => {
  const [running, first] = await begin({});
  await using turn = running;
  const end = await turn.activate(resolved(seqOf(first, 'callModel'), { ...ANSWERED, records: [null] }));
  expect(resultIn(end)).toMatchObject({ status: 'error' });
});

test('a command that arrives with the start does not delay the model call that the start has begun', async () => {
  const subject = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const [running, first] = await begin({}, sent({ type: 'pause', id: 'req_1', subject }));
  await using turn = running;
  expect(activitiesIn(first)).toEqual(['callModel']);
  // It is held: its tools do not begin ahead.
  expect(await turn.sinkCalls()).not.toContain('speculation.modelCalled');
  const records = [modelMessage({ content: 'Hello.' })];
  const end = await turn.activate(resolved(seqOf(first, 'callModel'), { ...ANSWERED, records }));
  expect(resultIn(end)).toEqual({ status: 'done', pending: [] });
});

test('a run that continues a turn starts the timer of what is due, although nothing else happens in it, and again if it fires early', async () => {
  const policy = { quorum: 1, onExpiry: 'deny', expiresInSeconds: 60 } as const;
  const actions = new TurnActions(turnStart({ pause: 'wait' }));
  actions.add(messageWith({ ...RUN, approval: true, policy }));
  actions.endTask([], Date.now());
  const carry = continuation({ ...actions.state, deadline: Infinity });
  const [running, first] = await begin({ pause: 'wait', carry });
  await using turn = running;
  const timers = first.flatMap(({ startTimer }) => startTimer ?? []);
  expect(timers).toHaveLength(1);
  // It fires before the time: the clocks of Temporal's hosts differ.
  const next = await turn.activate({ fireTimer: { seq: timers[0]!.seq ?? 0 } });
  expect(next.filter(({ startTimer }) => startTimer)).toHaveLength(1);
});

test('a model call gets the results that have been added since the last one of its thread', async () => {
  const [running, first] = await begin({});
  await using turn = running;
  const records = [messageWith(RUN)];
  const result = { kind: 'tool.response', at: IN_TIME.createdAt, threadId: 'main', toolCallId: 'call_0' };
  const response = { ...result, outcome: 'succeeded', content: 'ok' };
  const recent: unknown[] = [];
  let model = first;
  for (const n of [1, 2]) {
    const tool = await turn.activate(resolved(seqOf(model, 'callModel'), { ...ANSWERED, stamp: `m${n}`, records }));
    model = await turn.activate(resolved(seqOf(tool, 'callTool'), { stamp: `t${n}`, records: [response] }));
    recent.push(inputOf(model, 'callModel'));
  }
  expect(recent).toMatchObject([{ recent: ['m1', 't1'] }, { recent: ['m2', 't2'] }]);
});

test.each([
  ['the small results of a kernel host', 'ok', true],
  ['no large one', 'x'.repeat(2_000), false],
])('a model call has %s, which no worker has', async (_, content, isSmall) => {
  const [running, first] = await begin({});
  await using turn = running;
  const cell = {
    ...RUN,
    effect: 'once' as const,
    order: { server: 'kernel', order: 'strict' as const },
    inSandbox: true as const,
  };
  const message = { ...ANSWERED, stamp: 'm', records: [messageWith(cell)] };
  const opening = await turn.activate(resolved(seqOf(first, 'callModel'), message));
  const opened = { host: 'host-1', stamp: 'o', records: [] };
  const calling = await turn.activate(resolved(seqOf(opening, 'openSandbox'), opened));
  const at = IN_TIME.createdAt;
  const response = { kind: 'tool.response', at, threadId: 'main', toolCallId: 'call_0', outcome: 'succeeded', content };
  const ended = { stamp: 't', records: [response] };
  const next = await turn.activate(resolved(seqOf(calling, 'callTool'), ended));
  const input = inputOf(next, 'callModel');
  expect(input).toMatchObject({ recent: ['m', 'o', 't'] });
  const small = [opened, ended].map(({ stamp, records }) => ({ stamp, records }));
  expect(Object(input).ofHosts).toEqual(isSmall ? small : undefined);
});

test.each([
  ['cancels a turn that is nearly over, since clocks differ', [], true],
  ['does not cancel a turn that was paused since', [{ type: 'pause', id: 'req_1' }], false],
])('the end of its time that a worker reports %s', async (_, commands, expected) => {
  const subject = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const limits = { ...turnStart().limits, seconds: 30 };
  const [running] = await begin({ limits }, ...commands.map((one) => sent({ ...one, subject })));
  await using turn = running;
  expect(isCancelling(await turn.activate(cancelled('server-execution-timeout')))).toBe(expected);
});

test('a turn whose time is up ends, although a message arrives with a call that asks', async () => {
  const [running, first] = await begin({ pause: 'wait', limits: { ...turnStart().limits, seconds: 60 } });
  await using turn = running;
  turn.now += 3_600_000;
  const subject = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const steer = sent({ type: 'steer', id: 'req_1', subject, sessionId: 'ses_1', messages: ['And?'] });
  const records = [messageWith({ ...RUN, approval: true })];
  const end = await turn.activate(steer, resolved(seqOf(first, 'callModel'), { ...ANSWERED, records }));
  expect(resultIn(end)).toEqual({ status: 'cancelled', reason: 'server-execution-timeout' });
});

const MINUTE_MS = 60_000;

/** A command that changes nothing of what runs. */
function steering(id: string): Job {
  return sent({ type: 'steer', id, subject: ANN, sessionId: 'ses_1', messages: ['And?'] });
}

test('the time of a turn runs on in its next run', async () => {
  const carry = continuation({
    ...new TurnActions(turnStart()).state,
    deadline: Date.parse(IN_TIME.createdAt) + MINUTE_MS,
  });
  const [turn] = await begin({ carry, limits: { ...turnStart().limits, seconds: 3_600 } });
  await using running = turn;
  running.now += MINUTE_MS - 1;
  expect(isCancelling(await running.activate(steering('req_1')))).toBe(false);
  running.now += 1;
  expect(isCancelling(await running.activate(steering('req_2')))).toBe(true);
});

test('the time of a turn stands still while it is paused', async () => {
  const [turn] = await begin({ limits: { ...turnStart().limits, seconds: 60 } });
  await using running = turn;
  const control = (type: 'pause' | 'resume') => sent({ type, id: type, subject: ANN });
  await running.activate(control('pause'));
  running.now += 10 * MINUTE_MS;
  expect(isCancelling(await running.activate(steering('req_1')))).toBe(false);
  expect(isCancelling(await running.activate(control('resume')))).toBe(false);
  running.now += MINUTE_MS - 1;
  expect(isCancelling(await running.activate(steering('req_2')))).toBe(false);
  running.now += 1;
  expect(isCancelling(await running.activate(steering('req_3')))).toBe(true);
});

test('the first of several reasons to cancel a turn is that of its end', async () => {
  const [turn, first] = await begin({});
  await using running = turn;
  await running.activate(cancelled('client-cancelled'));
  await running.activate(cancelled('cancelled-for-next-turn'));
  const stopped = {
    resolveActivity: { seq: seqOf(first, 'callModel'), result: { cancelled: { failure: CANCELLED } } },
  };
  expect(resultIn(await running.activate(stopped))).toEqual({ status: 'cancelled', reason: 'client-cancelled' });
});

test('a turn that was cancelled in the queue at the moment at which it began ends, and calls no model', async () => {
  const [turn, first] = await begin({
    begun: { at: IN_TIME.createdAt, queuedRunId: 'r', cancelled: 'client-cancelled' },
  });
  await using _ = turn;
  expect(activitiesIn(first)).not.toContain('callModel');
  expect(resultIn(first)).toEqual({ status: 'cancelled', reason: 'client-cancelled' });
});
