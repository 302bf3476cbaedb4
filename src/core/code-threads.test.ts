import { expect, test } from 'vitest';
import { messageWith } from '../../test/support/model-message.ts';
import { PlayedRun, SUBJECT } from '../../test/support/played-run.ts';
import { turnStart } from '../../test/support/random-turn.ts';
import { KERNEL } from './call-order.ts';
import type { Call } from './call.ts';
import { callsOfInterrupted, codeToResume, commandsOf, endOfLostCell, lossOf } from './code-threads.ts';
import { interruptsAt } from './due.ts';
import type { TurnStart } from './history.ts';
import { resultId } from './ids.ts';
import type { ToolRoute } from './records/calls.ts';
import type { NewRecord } from './records/log.ts';
import type { SubAgent } from './records/threads.ts';
import { newThread } from './threads.ts';
import type { TurnCommand } from './turn-command.ts';
import { Turn } from './turn.ts';
import { turnResult } from './turn-result.ts';

const AT = '2026-11-28T08:00:00.000Z';

const CELL: ToolRoute = {
  to: 'server',
  effect: 'once',
  approval: false,
  callHash: 'h',
  inSandbox: true,
  order: { server: KERNEL },
};
const TOOL: ToolRoute = { to: 'server', effect: 'once', approval: false, callHash: 'h' };
const ASKS: ToolRoute = { ...TOOL, approval: true };
const COMMAND: ToolRoute = { ...TOOL, inSandbox: true };
const ANSWERED: ToolRoute = { to: 'answered', ran: true };

const PARENT = { threadId: 'main', toolCallId: 'call_0' };
const source = { turnId: 't', messageId: 'm', stamp: 's', index: 0, run: { ...CELL } };
const CODE: SubAgent = {
  threadId: 'code_1',
  code: { source },
  title: 'ipython',
  parent: PARENT,
  depth: 0,
  specHash: 'a',
  hasServers: false,
  iterations: 0,
};

/** The requests of code: the begin of its thread if it has none, and its calls. */
function asks(routes: ToolRoute[], isFirst = true): NewRecord[] {
  const created: NewRecord = { kind: 'thread.created', at: AT, thread: CODE, input: 'run()' };
  return [...(isFirst ? [created] : []), { ...messageWith(...routes), threadId: 'code_1', fromCode: true }];
}

const END: NewRecord[] = [
  { kind: 'thread.done', at: AT, threadId: 'code_1', title: 'ipython', parent: PARENT, end: { status: 'done' } },
  { kind: 'tool.response', at: AT, ...PARENT, outcome: 'succeeded', content: '42' },
];

const completed = (records: NewRecord[]) => ({ how: 'completed', stamp: 's', records }) as const;

function allow(toolCallId: string): Pick<TurnCommand, 'type'> {
  const answer = { type: 'user.tool_approval', threadId: 'code_1', toolCallId, approval: { status: 'allow' } };
  return { type: 'answer', answers: [answer], subject: SUBJECT, mayDecide: true } as Pick<TurnCommand, 'type'>;
}

/** A turn whose cell has asked for calls. */
function withCell(routes: ToolRoute[], start: Partial<TurnStart> = {}, cells = 1): PlayedRun {
  const run = new PlayedRun(start);
  run.task();
  run.answers(messageWith(...Array.from({ length: cells }, () => CELL)));
  expect(run.task()).toEqual(['main sandbox']);
  run.opens('host');
  expect(run.task()).toEqual(['main call_0']);
  run.ends('main call_0', completed(asks(routes)));
  return run;
}

test('the calls that code asks for are run, and then the code resumes, until it ends', () => {
  const run = withCell([TOOL, TOOL]);
  expect(run.task()).toEqual(['code_1 call_0', 'code_1 call_1']);
  run.returns('call_0', 'code_1');
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.returns('call_1', 'code_1');
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.codeInput('code_1')).toMatchObject({ cell: PARENT, step: 1, commands: [], specHash: 'a1' });
  run.ends('code_1 code', completed(asks([TOOL], false)));
  expect(run.task()).toEqual(['code_1 call_0']);
  run.returns('call_0', 'code_1');
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.codeInput('code_1').step).toBe(2);
  run.ends('code_1 code', completed(END));
  expect(run.task()).toEqual(['main model']);
});

test('a cell that waits delays the later cells of its message', () => {
  const run = withCell([TOOL], {}, 2);
  expect(run.task()).toEqual(['code_1 call_0']);
  run.returns('call_0', 'code_1');
  expect(run.task()).toEqual(['code_1 code']);
  run.ends('code_1 code', completed(END));
  expect(run.task()).toEqual(['main call_1']);
});

test('the code itself runs the commands that it has asked for', () => {
  const run = withCell([COMMAND, COMMAND]);
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.codeInput('code_1').commands).toEqual(['call_0', 'call_1']);
});

test('no call of code begins before people have decided on all, and then it is checked that the code still waits', () => {
  const run = withCell([TOOL, ASKS, ASKS], { pause: 'wait' });
  expect([run.task(), run.actions.pauses.reasons]).toEqual([[], ['action']]);
  expect(run.task(allow('call_1'))).toEqual([]);
  expect(run.task(allow('call_2'))).toEqual(['code_1 code']);
  expect(run.codeInput('code_1')).toMatchObject({ isCheck: true, step: 1, commands: [] });
  run.ends('code_1 code', completed([]));
  expect(run.task()).toEqual(['code_1 call_0', 'code_1 call_1', 'code_1 call_2']);
  for (const id of ['call_0', 'call_1', 'call_2']) run.returns(id, 'code_1');
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.codeInput('code_1').isCheck).toBeUndefined();
});

/** A run of a turn that waits, in which a call is allowed and runs. */
function allowed(run: PlayedRun): PlayedRun {
  expect(run.task(allow('call_0'))).toEqual(['code_1 sandbox']);
  run.opens('host', 'code_1');
  expect(run.task()).toEqual(['code_1 code']);
  run.ends('code_1 code', completed([]));
  expect(run.task()).toEqual(['code_1 call_0']);
  run.returns('call_0', 'code_1');
  expect(run.task()).toEqual(['code_1 code']);
  return run;
}

test('code gets the time that its turn has waited for people since its last calls, from each run of that', () => {
  const first = withCell([ASKS], { pause: 'wait' });
  expect(first.task()).toEqual([]);
  first.now += 2_000;
  const second = first.again();
  second.now += 3_000;
  expect(allowed(second).codeInput('code_1').waitedMs).toBe(5_000);
  second.ends('code_1 code', completed(asks([ASKS], false)));
  expect(second.task()).toEqual([]);
  const third = second.again();
  third.now += 1_000;
  expect(allowed(third).codeInput('code_1').waitedMs).toBe(1_000);
});

test('a turn ends while code waits for people, and the next one resumes it', () => {
  const run = withCell([TOOL, ASKS], {}, 2);
  expect([run.task(), run.end]).toMatchObject([[], { status: 'waiting', threads: [{ threadId: 'code_1', steps: 0 }] }]);
  const result = turnResult(run.end!, undefined, []);
  if (result.status !== 'done') throw new Error('the turn is not done');
  const { pending, threads = [] } = JSON.parse(JSON.stringify(result)) as typeof result;
  expect(pending.map(({ toolCallId, needs, threadId }) => [threadId, toolCallId, needs])).toEqual([
    ['main', 'call_1', 'order'],
    ['code_1', 'call_1', 'approval'],
    ['code_1', 'call_0', 'order'],
  ]);
  const approval = { status: 'allow' } as const;
  const next = new PlayedRun({
    resumes: { pending, threads },
    input: [{ type: 'user.tool_approval', threadId: 'code_1', toolCallId: 'call_1', approval }],
  });
  expect(next.task()).toEqual(['code_1 sandbox']);
  next.opens('host', 'code_1');
  expect(next.task()).toEqual(['code_1 code']);
  expect(next.codeInput('code_1').isCheck).toBe(true);
  next.ends('code_1 code', completed([]));
  expect(next.task()).toEqual(['code_1 call_1', 'code_1 call_0']);
  next.returns('call_0', 'code_1');
  next.returns('call_1', 'code_1');
  expect(next.task()).toEqual(['code_1 code']);
  next.ends('code_1 code', completed(END));
  expect(next.task()).toEqual(['main call_1']);
});

/** A call that code waits for until a time, in milliseconds since 1970, and that its policy would allow then. */
function asksUntil(expiresAt: number): ToolRoute {
  const policy = { quorum: 1, onExpiry: 'allow', expiresInSeconds: 60 };
  return { ...ASKS, to: 'server', action: { type: 'tool', expiresAt }, policy } as ToolRoute;
}

test('a call that code has asked for expires in a turn that waits, and the code resumes', () => {
  const run = withCell([asksUntil(Date.parse(AT) + 60_000)], { pause: 'wait' });
  run.task();
  expect(run.actions.nextDue).toBe(Date.parse(AT) + 60_000);
  run.now = Date.parse(AT) + 60_000;
  const { entries } = run.log.taskEnded(run.now, []);
  expect(entries.map(({ record }) => ('outcome' in record ? record.outcome : record.kind))).toEqual([
    'tool.decided',
    'expired',
    'turn.resumed',
  ]);
  expect(run.task()).toEqual(['code_1 code']);
});

test('a call that code has asked for expires between two turns, and the next one resumes the code for a message', () => {
  const run = withCell([asksUntil(Date.parse(AT) + 60_000), TOOL]);
  run.task();
  const result = turnResult(run.end!, undefined, []);
  if (result.status !== 'done') throw new Error('the turn is not done');
  const { pending, threads = [] } = JSON.parse(JSON.stringify(result)) as typeof result;
  const createdAt = new Date(Date.parse(AT) + 60_000).toISOString();
  const start = { resumes: { pending, threads }, createdAt, input: [{ type: 'user.message', content: 'Hi' } as const] };
  const next = new PlayedRun(start);
  const [, expired] = new Turn().started(turnStart(start));
  expect(expired?.record).toMatchObject({ kind: 'tool.response', toolCallId: 'call_0', outcome: 'expired' });
  expect(next.task()).toEqual(['code_1 sandbox']);
  next.opens('host', 'code_1');
  expect(next.task()).toEqual(['code_1 code']);
  next.ends('code_1 code', completed([]));
  expect(next.task()).toEqual(['code_1 call_1']);
  next.returns('call_1', 'code_1');
  expect(next.task()).toEqual(['code_1 code']);
  next.ends('code_1 code', completed(END));
  expect(next.task()).toEqual(['main model']);
});

test('code that does not wait any more is lost: what people have allowed meanwhile is not executed', () => {
  const run = withCell([ASKS, COMMAND], { pause: 'wait' });
  run.task();
  run.task(allow('call_0'));
  const entries = run.ends('code_1 code', { ...completed([]), lost: 'its kernel has ended' });
  expect(entries.map(({ record }) => record)).toMatchObject([
    { kind: 'tool.response', threadId: 'code_1', toolCallId: 'call_0', outcome: 'cancelled' },
    { kind: 'tool.response', threadId: 'code_1', toolCallId: 'call_1', outcome: 'cancelled' },
    { kind: 'thread.done', threadId: 'code_1', end: { status: 'error' } },
    { kind: 'tool.response', ...PARENT, outcome: 'failed', execution: { exit: 'lost' } },
  ]);
  expect(run.task()).toEqual(['main model']);
});

test('the effects of code are unknown if its host is lost after it has resumed', () => {
  const run = withCell([COMMAND]);
  run.task();
  const entries = run.ends('code_1 code', { how: 'timed_out' });
  expect(entries.map(({ record }) => record)).toMatchObject([
    { kind: 'tool.response', threadId: 'code_1', toolCallId: 'call_0', outcome: 'unknown_outcome' },
    { kind: 'thread.done', threadId: 'code_1' },
    { kind: 'tool.response', ...PARENT, outcome: 'unknown_outcome', execution: { exit: 'lost' } },
  ]);
});

test('a host that was lost while code waited has not resumed it', () => {
  const run = withCell([TOOL]);
  run.task();
  run.returns('call_0', 'code_1');
  run.task();
  const entries = run.ends('code_1 code', { how: 'timed_out', isUnstarted: true });
  expect(entries.at(-1)?.record).toMatchObject({ ...PARENT, outcome: 'failed', execution: { exit: 'lost' } });
});

test('the result of a call in the sandbox has the id that derives from its call, however it ends', () => {
  const ends = [completed(END), { how: 'timed_out' }, { ...completed([]), lost: 'its kernel has ended' }] as const;
  for (const carry of [false, true]) {
    for (const end of ends) {
      let run = withCell([COMMAND]);
      const { source: of } = run.log.thread('main').calls.get('call_0') ?? {};
      if (carry) run = run.again();
      run.task();
      if (carry) {
        run.opens('host', 'code_1');
        run.task();
      }
      const last = run.ends('code_1 code', end).at(-1)?.record;
      expect(last).toMatchObject({ ...PARENT, id: resultId(turnStart().turnId, of!) });
    }
  }
  const stopped = withCell([COMMAND]);
  const { source: of } = stopped.log.thread('main').calls.get('call_0') ?? {};
  const closed = stopped.log.feed({ type: 'closed', at: AT, close: { how: 'timed_out' } });
  expect(closed.map(({ record: { id } }) => id)).toContain(resultId(turnStart().turnId, of!));
});

test('code that is lost before it resumes has not run its commands', () => {
  for (const end of [{ how: 'timed_out', isUnstarted: true } as const, { ...completed([]), lost: 'it has ended' }]) {
    const run = withCell([COMMAND]);
    expect(run.task()).toEqual(['code_1 code']);
    expect(run.ends('code_1 code', end).map(({ record }) => record)).toMatchObject([
      { kind: 'tool.response', threadId: 'code_1', toolCallId: 'call_0', outcome: 'cancelled' },
      { kind: 'thread.done', threadId: 'code_1', end: { status: 'error' } },
      { kind: 'tool.response', ...PARENT, outcome: 'failed', execution: { exit: 'lost' } },
    ]);
  }
});

test('without a host for the sandbox, code that waits is lost', () => {
  const run = withCell([TOOL]);
  run.task();
  run.returns('call_0', 'code_1');
  const next = run.again();
  expect(next.task()).toEqual(['code_1 sandbox']);
  const entries = next.ends('code_1 sandbox', { how: 'timed_out' });
  expect(entries.map(({ record }) => record)).toMatchObject([
    { kind: 'thread.done', threadId: 'code_1' },
    { kind: 'tool.response', ...PARENT, outcome: 'failed', execution: { exit: 'lost' } },
  ]);
});

test('a turn that is cancelled closes the thread of its code', () => {
  const run = withCell([ASKS], { pause: 'wait' });
  run.task();
  const entries = run.log.feed({ type: 'closed', at: AT, close: { how: 'terminated', reason: 'client-cancelled' } });
  expect(entries.map(({ record }) => record)).toMatchObject([
    { kind: 'tool.response', threadId: 'code_1', toolCallId: 'call_0', outcome: 'cancelled' },
    { kind: 'thread.done', threadId: 'code_1', end: { status: 'error' } },
    { kind: 'tool.response', ...PARENT, outcome: 'cancelled', execution: { exit: 'interrupted' } },
    { kind: 'turn.done' },
  ]);
});

test('a paused turn begins no call of code, and does not resume it', () => {
  const run = withCell([TOOL], { pause: 'wait' });
  expect(run.task({ type: 'pause' })).toEqual([]);
  expect(run.task({ type: 'resume' })).toEqual(['code_1 call_0']);
  run.returns('call_0', 'code_1');
  expect(run.task({ type: 'pause' })).toEqual([]);
  expect(run.task({ type: 'resume' })).toEqual(['code_1 code']);
});

/** A command that interrupts the code of a thread. */
function interrupts(threadId = 'main'): Pick<TurnCommand, 'type'> {
  return { type: 'interrupt', threadId } as Pick<TurnCommand, 'type'>;
}

/** The records of the log on the calls of code after a task. */
function settledBy(run: PlayedRun, command: Pick<TurnCommand, 'type'>): string[] {
  const { entries } = run.log.taskEnded(run.now, [{ id: 'req_1', subject: SUBJECT, ...command } as TurnCommand]);
  return entries.flatMap(({ record }) => {
    return record.kind === 'tool.response' ? [`${record.threadId} ${record.toolCallId} ${record.outcome}`] : [];
  });
}

const INTERRUPT = 'interrupt main call_0 0';

test('a cell that runs is interrupted once on its host, and the turn continues', () => {
  const run = new PlayedRun();
  run.task();
  expect(run.task(interrupts())).toEqual([]);
  run.answers(messageWith(CELL, CELL, TOOL));
  run.task();
  run.opens('host');
  run.task();
  expect(run.actions.refuse({ type: 'interrupt', id: 'r', subject: SUBJECT, threadId: 'other' })).toMatchObject({
    code: 'nothing_running',
  });
  expect(run.task(interrupts())).toEqual([`${INTERRUPT} 0`]);
  expect(run.task(interrupts())).toEqual([]);
  run.returns('call_0');
  // The next cell of the message is not interrupted.
  expect(run.task()).toEqual(['main call_1']);
  expect(run.task()).toEqual([]);
});

test('a cell that runs is interrupted on its host, also in a turn that is paused', () => {
  const run = withCell([COMMAND]);
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.codeInput('code_1').isInterrupted).toBeUndefined();
  expect(run.task({ type: 'pause' }, interrupts())).toEqual([`${INTERRUPT} 1`]);
});

test('the host of a cell that runs is notified once that its turn is paused', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(messageWith(CELL));
  run.task();
  run.opens('host');
  run.task();
  expect(run.task({ type: 'pause' })).toEqual(['hold main call_0 0 0']);
  expect(run.task()).toEqual([]);
  expect(run.task({ type: 'resume' })).toEqual([]);
  run.ends('main call_0', completed(asks([ANSWERED])));
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.task({ type: 'pause' })).toEqual(['hold main call_0 0 1']);
  run.ends('code_1 code', completed(asks([TOOL], false)));
  expect(run.task()).toEqual([]);
  expect(run.task({ type: 'resume' })).toEqual(['code_1 call_0']);
});

test('the host of a cell gets the time when that of its turn is used up', () => {
  const seconds = 1e9;
  const run = withCell([ANSWERED], { budget: { scope: 'turn', limit: { seconds } } }, 2);
  const callsUntilMs = Date.parse(run.log.start?.createdAt ?? '') + seconds * 1000;
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.codeInput('code_1')).toMatchObject({ callsUntilMs });
  run.ends('code_1 code', completed(END));
  expect(run.task()).toEqual(['main call_1']);
  expect(run.toolInput('call_1')).toMatchObject({ callsUntilMs });
});

test('a call that a host has begun may have taken effect when its turn ends', () => {
  const run = withCell([{ ...TOOL, effect: 'retry', hasBegun: true }, TOOL]);
  const entries = run.log.feed({ type: 'closed', at: AT, close: { how: 'terminated', reason: 'abandoned' } });
  const outcomes = entries.flatMap(({ record }) => (record.kind === 'tool.response' ? record.outcome : []));
  expect(outcomes).toEqual(['unknown_outcome', 'cancelled', 'cancelled']);
});

test('a cell that waits is interrupted where it waits: its questions and its tools are cancelled', () => {
  const asking = withCell([TOOL, ASKS], { pause: 'wait' });
  asking.task();
  expect(settledBy(asking, interrupts())).toEqual(['code_1 call_0 cancelled', 'code_1 call_1 cancelled']);
  expect([asking.actions.pauses.reasons, asking.task()]).toEqual([[], ['code_1 code']]);
  expect(asking.codeInput('code_1')).toMatchObject({ isInterrupted: true, commands: [] });
  expect(asking.task()).toEqual([]);

  const calling = withCell([TOOL, TOOL]);
  calling.task();
  calling.returns('call_0', 'code_1');
  expect(calling.task(interrupts())).toEqual(['cancel code_1 call_1']);
  calling.ends('code_1 call_1', { how: 'cancelled', started: true });
  expect(calling.task()).toEqual(['code_1 code']);
  expect(calling.codeInput('code_1').isInterrupted).toBe(true);
});

test.each<[string, Partial<TurnStart>]>([
  ['that waits', { pause: 'wait' }],
  ['that ends when it needs answers', {}],
])('the calls that a cell asks for with its interrupt are given up, also in the next run of a turn %s', (_, start) => {
  const run = new PlayedRun(start);
  run.task();
  run.answers(messageWith(CELL));
  run.task();
  run.opens('host');
  run.task();
  run.task(interrupts());
  run.ends('main call_0', completed(asks([ASKS, TOOL])));
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toMatchObject([[], { status: 'continue' }]);
  const next = run.again();
  expect(next.task()).toEqual(['code_1 sandbox']);
  next.opens('host', 'code_1');
  expect(next.task()).toEqual(['code_1 code']);
  expect(next.codeInput('code_1').isInterrupted).toBe(true);
});

test('a turn that is to answer interrupts its code, and begins none', () => {
  const running = new PlayedRun({ pause: 'wait' });
  running.task();
  running.answers(messageWith(CELL, CELL));
  running.task();
  running.opens('host');
  running.task();
  expect(settledBy(running, { type: 'force_answer' })).toEqual(['main call_1 cancelled']);
  expect(running.task()).toEqual([`${INTERRUPT} 0`]);
  running.returns('call_0');
  expect(running.task()).toEqual(['main model']);
  const waiting = withCell([ASKS], { pause: 'wait' });
  waiting.task();
  expect(waiting.task({ type: 'force_answer' })).toEqual(['code_1 code']);
  expect(waiting.codeInput('code_1').isInterrupted).toBe(true);
});

test('a turn that is to answer begins no call of code that has not begun', () => {
  const run = withCell([TOOL, ASKS], { pause: 'wait' });
  expect(run.task({ type: 'pause' })).toEqual([]);
  expect(settledBy(run, { type: 'force_answer' })).toEqual(['code_1 call_1 cancelled', 'code_1 call_0 cancelled']);
});

test('at the time for its answer a turn interrupts the code that runs, and no tool', () => {
  const start = { limits: { ...turnStart().limits, answerAfterSeconds: 60 } };
  const dueIn = (run: PlayedRun, isStopping = false) => {
    const at = interruptsAt(run.log, { interrupted: new Set(), isStopping }, run.now);
    return at === undefined ? undefined : at - Date.parse(turnStart().createdAt);
  };
  const running = withCell([COMMAND], start);
  expect(dueIn(running)).toBeUndefined();
  running.task();
  expect(dueIn(running)).toBe(60_000);
  // Nothing is begun any more, so the time must not be due for ever.
  expect(dueIn(running, true)).toBeUndefined();
  expect(running.task()).toEqual([]);
  running.set({ isTimeUp: true });
  expect(running.task()).toEqual([`${INTERRUPT} 1`]);
  running.task({ type: 'pause' });
  expect(dueIn(running)).toBeUndefined();
  const calling = withCell([TOOL], start);
  calling.task();
  expect(dueIn(calling)).toBeUndefined();
  calling.set({ isTimeUp: true });
  expect(calling.task()).toEqual([]);
  const withoutTime = withCell([COMMAND]);
  withoutTime.task();
  expect(dueIn(withoutTime)).toBeUndefined();
});

test('the messages of code are no model calls, and its calls are counted', () => {
  const run = withCell([TOOL, TOOL]);
  expect(run.log.open).toMatchObject({ modelCalls: 1, toolCalls: 3 });
});

/** A call of code: a tool, or a command of the sandbox. */
function callOf(toolCallId: string, state: Call['state'], route: ToolRoute = TOOL): Call {
  const run = { callHash: 'h', effect: 'once' as const, ...('inSandbox' in route && { inSandbox: true as const }) };
  return { threadId: 'code_1', toolCallId, state, source: { ...source, run }, votes: [] };
}

const codeWith = (...calls: Call[]) => newThread({ agent: CODE, calls });

test('code resumes when none of its calls waits or runs, and then runs the commands that are ready', () => {
  const resumes = (states: Call['state'][]) => {
    const calls = states.map((state, i) => callOf(`c${i}`, state));
    return codeToResume(new Map([['code_1', codeWith(...calls)]])).length === 1;
  };
  const all: Call['state'][][] = [[], ['settled', 'ready'], ['new'], ['ready', 'waiting'], ['running']];
  expect(all.map(resumes)).toEqual([true, true, false, false, false]);
  expect(codeToResume(new Map([['main', newThread()]]))).toEqual([]);
  const calls = [callOf('a', 'ready', COMMAND), callOf('b', 'settled', COMMAND), callOf('c', 'ready')];
  expect(commandsOf(calls).map(({ toolCallId }) => toolCallId)).toEqual(['a']);
});

test('code whose parent has no such call was not interrupted, unless all code was', () => {
  const code = codeWith(callOf('a', 'ready'), callOf('b', 'settled'));
  const interrupted = (isForced: boolean, ...others: [string, ReturnType<typeof newThread>][]) =>
    callsOfInterrupted(new Map([...others, ['code_1', code]]), isForced).map(({ toolCallId }) => toolCallId);
  expect([interrupted(false), interrupted(false, ['main', newThread()]), interrupted(true)]).toEqual([[], [], ['a']]);
});

test('the cell of code is lost with its reason, but not if its turn has ended it', () => {
  const ends = [
    { how: 'failed', message: 'no disk' },
    { how: 'timed_out' },
    { how: 'cancelled', started: true },
    completed([]),
    { ...completed([]), lost: 'it has ended' },
  ] as const;
  expect(ends.map(lossOf)).toEqual(['no disk', 'its kernel host was lost', undefined, undefined, 'it has ended']);
});

test('the end of lost code has a result for each call that has none, and a thread of an agent no such end', () => {
  const end = endOfLostCell(codeWith(callOf('a', 'settled'), callOf('b', 'ready')), { at: AT, reason: 'x' });
  expect(end).toMatchObject([
    { toolCallId: 'b', outcome: 'cancelled' },
    { kind: 'thread.done' },
    { ...PARENT, outcome: 'failed' },
  ]);
  expect(endOfLostCell(newThread({ calls: [callOf('b', 'ready')] }), { at: AT, reason: 'x' })).toEqual([]);
});
