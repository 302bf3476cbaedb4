import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import type { coresdk } from '@temporalio/proto';
import { expect, test } from 'vitest';
import type { PendingCall } from '../src/core/records/pending.ts';
import type { CreateTurnCommand, SeenTurn, SessionStart, SessionTurnsState, Tip } from '../src/core/session.ts';
import { ActivatedWorkflow, toPayload, type Job } from '../test/support/activated-workflow.ts';
import { turnStart } from '../test/support/random-turn.ts';
import { cancelSession, createTurn } from './messages.ts';

type Command = coresdk.workflow_commands.IWorkflowCommand;

const source = { turnId: 'turn_3', messageId: 'm', stamp: 's', index: 0 };
const pending: PendingCall = { threadId: 'main', toolCallId: 'c', needs: 'response', source };
const tip: Tip = { turnId: 'turn_3', previousTurnId: 'turn_2', sequence: 3, pending: [] };

const from = (payload: Payload | null | undefined) => payload && defaultPayloadConverter.fromPayload<unknown>(payload);

/** A command in short; empty for one of no interest here. */
function short({ updateResponse, startChildWorkflowExecution: start, ...rest }: Command): string[] {
  if (updateResponse?.rejected) return [`rejected ${updateResponse.rejected.applicationFailureInfo?.type}`];
  if (updateResponse?.completed) return [`result ${JSON.stringify(from(updateResponse.completed) ?? null)}`];
  if (start) return [`start ${start.workflowId}`];
  const {
    signalExternalWorkflowExecution: signal,
    scheduleActivity,
    startTimer,
    continueAsNewWorkflowExecution,
    completeWorkflowExecution,
  } = rest;
  if (signal) return [`${signal.signalName} ${signal.workflowExecution?.workflowId}`];
  if (scheduleActivity) return [`${scheduleActivity.activityType}`];
  if (startTimer) return [`wait ${startTimer.startToFireTimeout?.seconds?.low} s`];
  if (completeWorkflowExecution) return ['end'];
  return continueAsNewWorkflowExecution ? ['continue as new'] : [];
}

/** A session that Temporal runs, as far as the test plays it. */
class PlayedSession {
  readonly #workflow: ActivatedWorkflow;
  #updates = 0;
  /** The numbers of the commands that wait for results, by their short forms. */
  readonly #waiting = new Map<string, number>();
  /** The input of the next run. */
  continues: SessionStart | undefined;

  private constructor(workflow: ActivatedWorkflow) {
    this.#workflow = workflow;
  }

  /**
   * Continues a session in this state: its newest turn is `tip`, which has ended unless `open` is set.
   * @param idleSeconds its idle time, of which nothing has passed
   */
  static async continued(given: Partial<SessionTurnsState> = {}, idleSeconds?: number): Promise<PlayedSession> {
    const workflow = await ActivatedWorkflow.create('session');
    const session = new PlayedSession(workflow);
    const state: SessionTurnsState = { tip, open: false, closed: false, queue: [], newest: 'turn_6', ...given };
    const idle = idleSeconds && { idle: { seconds: idleSeconds, since: workflow.now } };
    const input = [toPayload({ sessionId: 'ses_1', state, ...idle })];
    await session.task({ initializeWorkflow: { workflowType: 'session', arguments: input } });
    return session;
  }

  /** Returns what the session does, except for its timers: some are cancelled in the same task. */
  async task(...jobs: Job[]): Promise<string[]> {
    const commands = await this.#workflow.activate(...jobs);
    return commands.flatMap((command) => {
      const [one] = short(command);
      const [next] = command.continueAsNewWorkflowExecution?.arguments ?? [];
      if (next) this.continues = defaultPayloadConverter.fromPayload<SessionStart>(next);
      const { startChildWorkflowExecution, signalExternalWorkflowExecution, scheduleActivity, startTimer } = command;
      const asked = startChildWorkflowExecution ?? signalExternalWorkflowExecution ?? scheduleActivity ?? startTimer;
      if (one && asked) this.#waiting.set(one, asked.seq ?? 0);
      return one && !startTimer ? [one] : [];
    });
  }

  set historyLength(events: number) {
    this.#workflow.historyLength = events;
  }

  get now(): number {
    return this.#workflow.now;
  }

  /** Time passes until the next task. */
  pass(seconds: number): void {
    this.#workflow.now += seconds * 1000;
  }

  #update(name: string, input: object): Job {
    const id = `update_${this.#updates++}`;
    return {
      doUpdate: { id, protocolInstanceId: id, name, input: [toPayload(input)], headers: {}, runValidator: true },
    };
  }

  create(turnId: string, given: Partial<CreateTurnCommand> = {}): Job {
    const { createdAt, createdBy, owner, input, title, specHash, hasServers, limits } = turnStart();
    const command = { createdAt, createdBy, owner, input, title, specHash, hasServers, limits, ...given };
    return this.#update(createTurn.name, { turnId, previous: { turn: 'last' }, ...command });
  }

  cancel(): Job {
    return this.#update(cancelSession.name, { close: false, upTo: 'turn_z' });
  }

  started(turnId: string): Job {
    const seq = this.#seq(`start turn/${turnId}`);
    return { resolveChildWorkflowExecutionStart: { seq, succeeded: { runId: 'run_1' } } };
  }

  existsAlready(turnId: string): Job {
    const seq = this.#seq(`start turn/${turnId}`);
    const failed = { workflowId: `turn/${turnId}`, workflowType: 'turn', cause: 1 };
    return { resolveChildWorkflowExecutionStart: { seq, failed } };
  }

  signalled(signal: string, failure?: { message: string }): Job {
    return { resolveSignalExternalWorkflow: { seq: this.#seq(signal), ...(failure && { failure }) } };
  }

  seen(turn: Partial<SeenTurn>): Job {
    const result = toPayload({ ...tip, open: false, ...turn });
    return { resolveActivity: { seq: this.#seq('inspectTurn'), result: { completed: { result } } } };
  }

  passed(timer: string): Job {
    return { fireTimer: { seq: this.#seq(timer) } };
  }

  #seq(asked: string): number {
    const seq = this.#waiting.get(asked);
    if (seq === undefined)
      throw new Error(`the session has not asked for ${asked}: ${[...this.#waiting.keys()].join()}`);
    return seq;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#workflow[Symbol.asyncDispose]();
  }
}

const created = (turnId: string, sequence: number, previousTurnId: string | null) =>
  `result ${JSON.stringify({ turnId, previousTurnId, sequence })}`;

test('a turn is accepted and started in one task; the next command waits until it has started', async () => {
  await using session = await PlayedSession.continued();
  expect(await session.task(session.create('turn_7'))).toEqual(['start turn/turn_7', created('turn_7', 4, 'turn_3')]);
  expect(await session.task(session.create('turn_8', { onRunning: 'queue' }))).toEqual([]);
  expect(await session.task(session.started('turn_7'))).toEqual(['inspectTurn']);
  const running = { turnId: 'turn_7', sequence: 4, open: true };
  expect(await session.task(session.seen(running))).toEqual([
    'start turn/turn_8',
    `result ${JSON.stringify({ turnId: 'turn_8', queued: { number: 1 } })}`,
  ]);
});

test.each([
  ['nothing that waits: the next one starts', [], ['start turn/turn_7', created('turn_7', 4, 'turn_3')]],
  ['a call that waits: the next one must answer that', [pending], ['rejected actions_pending']],
] as const)('a running turn that is cancelled for the next one ends with %s', async (_, calls, expected) => {
  await using session = await PlayedSession.continued({ open: true });
  expect(await session.task(session.create('turn_7'))).toEqual(['cancelTurn turn/turn_3']);
  const [ended, polled] = [session.signalled('cancelTurn turn/turn_3'), session.passed('wait 1 s')];
  expect(await session.task(ended, polled)).toEqual(['inspectTurn']);
  expect(await session.task(session.seen({ pending: [...calls] }))).toEqual(expected);
});

test('a turn that cannot be started is forgotten; one that exists already is followed', async () => {
  await using session = await PlayedSession.continued();
  await session.task(session.create('turn_7'));
  expect(await session.task(session.existsAlready('turn_7'))).toEqual(['inspectTurn']);
  await session.task(session.seen({ turnId: 'turn_7', sequence: 4, previousTurnId: 'turn_3' }));
  expect(await session.task(session.create('turn_8'))).toEqual(['start turn/turn_8', created('turn_8', 5, 'turn_7')]);
});

test('a queue advances when the running turn ends, and passes over a turn that has closed', async () => {
  const queue = [1, 2].map((number) => ({ turnId: `turn_${number + 4}`, number }));
  await using session = await PlayedSession.continued({ open: true, queue });
  await session.task(session.passed('wait 1 s'));
  expect(await session.task(session.seen({}))).toEqual(['beginTurn turn/turn_5']);
  expect(await session.task(session.signalled('beginTurn turn/turn_5', { message: 'closed' }))).toEqual([
    'beginTurn turn/turn_6',
  ]);
});

test('a long session continues as new, but not while it starts a turn or cancels one', async () => {
  await using session = await PlayedSession.continued();
  session.historyLength = 10_000;
  expect(await session.task(session.create('turn_7'))).not.toContain('continue as new');
  expect(await session.task(session.started('turn_7'), session.cancel())).not.toContain('continue as new');
});

test.each([
  ['to cancel', (it: PlayedSession) => it.cancel(), ['result null']],
  ['that is repeated', (it: PlayedSession) => it.create('turn_3'), [created('turn_3', 3, 'turn_2')]],
])(
  'a session ends when its idle time is over, which counts from the last command, such as one %s',
  async (...given) => {
    const [, command, expected] = given;
    await using session = await PlayedSession.continued({}, 60);
    session.pass(40);
    expect(await session.task(command(session))).toEqual(expected);
    session.pass(20);
    expect(await session.task(session.passed('wait 60 s'))).toEqual([]);
    session.pass(40);
    expect(await session.task(session.passed('wait 40 s'))).toEqual(['end']);
  },
);

test('the idle time counts from the end of the last turn, however long that has run', async () => {
  await using session = await PlayedSession.continued({ open: true }, 60);
  session.pass(600);
  await session.task(session.passed('wait 1 s'));
  expect(await session.task(session.seen({}))).toEqual([]);
  session.pass(60);
  expect(await session.task(session.passed('wait 60 s'))).toEqual(['end']);
});

test.each([
  ['creates a turn', (it: PlayedSession) => it.create('turn_7'), ['start turn/turn_7', created('turn_7', 4, 'turn_3')]],
  ['cancels', (it: PlayedSession) => it.cancel(), ['result null']],
])('a command that %s in the task in which the idle time is over is carried out', async (_, command, expected) => {
  for (const isFirst of [true, false]) {
    await using session = await PlayedSession.continued({}, 60);
    session.pass(60);
    const jobs = [session.passed('wait 60 s'), command(session)];
    expect(await session.task(...(isFirst ? jobs : jobs.toReversed()))).toEqual(expected);
  }
});

test.each([
  ['a turn runs', { open: true }],
  ['a turn is queued', { open: true, queue: [{ turnId: 'turn_5', number: 1 }] }],
  ['a call waits', { tip: { ...tip, pending: [pending] } }],
])('a session does not end while %s', async (_, state) => {
  await using session = await PlayedSession.continued(state, 60);
  session.pass(3600);
  expect(await session.task(session.cancel())).not.toContain('end');
  expect(() => session.passed('wait 60 s')).toThrow('has not asked for');
});

test('a session without an idle time, such as one that an earlier version has begun, does not end', async () => {
  await using session = await PlayedSession.continued();
  expect(() => session.passed('wait 60 s')).toThrow('has not asked for');
});

test('the idle time continues in the next run', async () => {
  await using session = await PlayedSession.continued({}, 60);
  const { now } = session;
  session.historyLength = 10_000;
  session.pass(20);
  expect(await session.task(session.cancel())).toEqual(['result null', 'continue as new']);
  expect(session.continues?.idle).toEqual({ seconds: 60, since: now + 20_000 });
});
