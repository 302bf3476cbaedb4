import { expect, test } from 'vitest';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import { PlayedRun, SUBJECT } from '../../test/support/played-run.ts';
import { turnStart } from '../../test/support/random-turn.ts';
import type { TurnStart, WorkflowClose } from './history.ts';
import type { ToolRoute } from './records/calls.ts';
import type { LogEntry, NewRecord } from './records/log.ts';
import type { SubAgent } from './records/threads.ts';
import type { TurnCommand } from './turn-command.ts';

const AT = '2026-11-28T08:00:00.000Z';

const RUN: ToolRoute = { to: 'server', effect: 'retry', approval: false, callHash: 'h' };
const TASK: ToolRoute = { ...RUN, startsTask: true };
const ASKS: ToolRoute = { ...RUN, approval: true };

/** The task of a call of the root agent. */
function task(n: number, fields: Partial<SubAgent> = {}): SubAgent {
  const parent = { threadId: 'main', toolCallId: `call_${n}` };
  const rest = { title: 't', depth: 1, specHash: 'a', hasServers: false, iterations: 2 };
  return { threadId: `thr_${n}`, parent, ...rest, isTask: true, ...fields };
}

function begins(run: PlayedRun, thread: SubAgent): void {
  const records: NewRecord[] = [{ kind: 'thread.created', at: AT, thread, input: 'do' }];
  run.ends(`main ${thread.parent.toolCallId}`, { how: 'completed', stamp: 's', records });
}

/** The records with which a task ends. */
function ended({ threadId, title, parent }: SubAgent): NewRecord[] {
  return [
    { kind: 'thread.done', at: AT, threadId, title, parent, end: { status: 'done' }, output: modelMessage() },
    { kind: 'tool.response', at: AT, ...parent, outcome: 'succeeded', content: 'x', fromThread: threadId },
  ];
}

function answers(run: PlayedRun, thread: SubAgent): void {
  const message = modelMessage({ content: 'Done.', threadId: thread.threadId });
  run.answers(message, ...ended(thread));
}

function decides(threadId: string, toolCallId: string, status: 'allow' | 'deny'): Pick<TurnCommand, 'type'> {
  const answer = { type: 'user.tool_approval', threadId, toolCallId, approval: { status } };
  return { type: 'answer', answers: [answer], subject: SUBJECT, mayDecide: true } as Pick<TurnCommand, 'type'>;
}

const limitedTo = (tasks: number): Partial<TurnStart> => ({ limits: { ...turnStart().limits, tasks } });

/** A turn whose first message starts tasks. */
function starting(routes: ToolRoute[], start: Partial<TurnStart>): PlayedRun {
  const run = new PlayedRun(start);
  run.task();
  run.answers(messageWith(...routes));
  return run;
}

test('a call begins if there is room for its task, which it has until it is done', () => {
  const run = starting([TASK, TASK, TASK, RUN], limitedTo(2));
  expect(run.task()).toEqual(['main call_0', 'main call_1', 'main call_3']);
  begins(run, task(0));
  begins(run, task(1));
  run.returns('call_3');
  expect(run.task()).toEqual(['thr_0 model', 'thr_1 model']);
  answers(run, task(1));
  expect(run.task()).toEqual(['main call_2']);
});

test('calls without room wait in the runs that follow, and in the next turn', () => {
  const run = starting([TASK, TASK], limitedTo(1));
  run.task();
  begins(run, task(0));
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toEqual([[], { status: 'continue' }]);
  const next = run.again();
  expect(next.task()).toEqual(['thr_0 model']);
  next.answers({ ...messageWith(ASKS), threadId: 'thr_0' });
  next.task();
  const { end } = next;
  if (end?.status !== 'waiting') throw new Error('it does not wait');
  expect(end.pending.map(({ threadId, toolCallId, needs }) => `${threadId} ${toolCallId} ${needs}`)).toEqual([
    'main call_1 order',
    'thr_0 call_0 approval',
  ]);
  const { pending, threads = [] } = JSON.parse(JSON.stringify(end)) as typeof end;
  const later = new PlayedRun({
    ...limitedTo(1),
    resumes: { pending, threads },
    input: [{ type: 'user.tool_approval', threadId: 'thr_0', toolCallId: 'call_0', approval: { status: 'allow' } }],
  });
  expect(later.task()).toEqual(['thr_0 call_0']);
  later.returns('call_0', 'thr_0');
  expect(later.task()).toEqual(['thr_0 model']);
  answers(later, task(0));
  expect(later.task()).toEqual(['main call_1']);
});

test('a task that waits for a person keeps its room, and the turn is paused', () => {
  const run = starting([TASK, TASK], { ...limitedTo(1), pause: 'wait' });
  run.task();
  begins(run, task(0));
  run.task();
  run.answers({ ...messageWith(ASKS), threadId: 'thr_0' });
  expect(run.task()).toEqual([]);
  expect(run.actions.pauses.reasons).toEqual(['action']);
});

test('when an answer is forced, no task begins any more', () => {
  const run = starting([TASK, TASK], { ...limitedTo(1), pause: 'wait' });
  run.task();
  begins(run, task(0));
  run.task();
  run.task({ type: 'force_answer' });
  expect(run.log.thread('main').calls.get('call_1')?.state).toBe('settled');
});

test('the sub-agents of an agent that does not act in code are not counted', () => {
  const run = starting([TASK, TASK], {});
  run.task();
  for (const n of [0, 1]) begins(run, task(n));
  expect(run.task()).toEqual(['thr_0 model', 'thr_1 model']);
});

test('after its model calls with their tools a task ends, without another', () => {
  const run = starting([TASK], limitedTo(1));
  run.task();
  begins(run, task(0));
  for (const step of [1, 2]) {
    expect(run.task()).toEqual(['thr_0 model']);
    const input = run.modelInput('thr_0');
    expect([input.step, input.isLast, input.ends, input.mayStart]).toEqual([step, undefined, undefined, undefined]);
    run.answers({ ...messageWith(RUN), threadId: 'thr_0' });
    expect(run.task()).toEqual(['thr_0 call_0']);
    run.returns('call_0', 'thr_0');
  }
  expect(run.task()).toEqual(['thr_0 model']);
  expect(run.modelInput('thr_0').ends).toBe('max_turns');
  run.model('thr_0', { status: 'ended' }, ...ended(task(0)));
  expect(run.task()).toEqual(['main model']);
  expect(run.modelInput('main').ends).toBeUndefined();
});

test('a denial ends the task alone, after what was allowed; what still waits is cancelled', () => {
  const run = starting([TASK], { ...limitedTo(1), pause: 'wait', endsOnDenial: true });
  run.task();
  begins(run, task(0, { endsOnDenial: true, iterations: 9 }));
  run.task();
  run.answers({ ...messageWith(ASKS, ASKS, RUN), threadId: 'thr_0' });
  run.task();
  expect(run.task(decides('thr_0', 'call_0', 'deny'))).toEqual([]);
  run.returns('call_2', 'thr_0');
  expect(run.task()).toEqual(['thr_0 model']);
  expect(run.modelInput('thr_0').ends).toBe('denial');
  const entries = run.ends('thr_0 model', {
    how: 'completed',
    stamp: 's',
    outcome: { status: 'ended' },
    records: ended(task(0)),
  });
  expect(entries.map(outcome)).toEqual(['thr_0 call_1 cancelled', 'thread.done', 'main call_0 succeeded']);
  expect(run.task()).toEqual(['main model']);
  expect(run.modelInput('main').ends).toBeUndefined();
});

function outcome({ record }: LogEntry): string {
  if (record.kind !== 'tool.response') return record.kind;
  return `${record.threadId} ${record.toolCallId} ${record.outcome}`;
}

test('a task whose agent does not say so reads the denial', () => {
  const run = starting([TASK], { ...limitedTo(1), pause: 'wait' });
  run.task();
  begins(run, task(0, { iterations: 9 }));
  run.task();
  run.answers({ ...messageWith(ASKS), threadId: 'thr_0' });
  run.task();
  expect(run.task(decides('thr_0', 'call_0', 'deny'))).toEqual(['thr_0 model']);
  expect(run.modelInput('thr_0').ends).toBeUndefined();
});

test.each<[string, (run: PlayedRun) => void, string]>([
  ['while its model is called', () => undefined, 'model'],
  ['while its model is called, and it is paused', (run) => void run.task({ type: 'pause' }), 'model'],
  [
    'while a call runs',
    (run) => {
      run.answers(messageWith(RUN));
      run.task();
    },
    'tool',
  ],
  [
    'while a sub-agent calls its model',
    (run) => {
      run.answers(messageWith(TASK));
      run.task();
      begins(run, task(0));
      run.task();
    },
    'tool',
  ],
  [
    'while a person decides',
    (run) => {
      run.answers(messageWith(ASKS));
      run.task();
    },
    'between',
  ],
])('the log says what a turn did when it was cancelled: %s', (_, play, phase) => {
  const run = new PlayedRun({ ...limitedTo(1), pause: 'wait' });
  run.task();
  play(run);
  const { running } = run;
  run.set({ isStopping: true });
  run.task({ type: 'cancelled' } as unknown as TurnCommand);
  for (const name of running) run.ends(name, { how: 'cancelled', started: true });
  expect(cancelled(run)).toEqual({ status: 'cancelled', reason: 'client-cancelled', phase });
});

test('a time limit cancels what has ended last', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(messageWith(RUN));
  run.task();
  run.ends('main call_0', { how: 'cancelled', started: true });
  expect(cancelled(run)).toMatchObject({ phase: 'tool' });
});

function cancelled(run: PlayedRun): object {
  const close: WorkflowClose = { how: 'completed', result: { status: 'cancelled', reason: 'client-cancelled' } };
  const done = run.log.feed({ type: 'closed', at: AT, close }).at(-1)?.record;
  if (done?.kind !== 'turn.done') throw new Error('no turn.done');
  return done.end;
}
