import { describe, expect, test } from 'vitest';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import { PlayedRun, SUBJECT } from '../../test/support/played-run.ts';
import { continuation, turnStart } from '../../test/support/random-turn.ts';
import { KERNEL } from './call-order.ts';
import type { ActivityResult, CallModelResult, TurnResult, TurnStart, WorkflowClose } from './history.ts';
import { firstCallOf, Turn } from './turn.ts';
import type { ApprovalPolicy, ToolRoute } from './records/calls.ts';
import type { InputItem } from './records/input.ts';
import type { NewRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import type { Approval, PendingCall } from './records/pending.ts';
import type { SubAgent } from './records/threads.ts';
import type { AnswerCommand, TurnCommand } from './turn-command.ts';
import { turnResult } from './turn-result.ts';

const AT = '2026-11-28T08:00:00.000Z';
const NOW = Date.parse(AT);

const CELL: ToolRoute = {
  to: 'server',
  effect: 'once',
  approval: false,
  callHash: 'h',
  inSandbox: true,
  order: { server: KERNEL },
};
const FILE: ToolRoute = { to: 'server', effect: 'retry', approval: false, callHash: 'h', inSandbox: true };
const RUN: ToolRoute = { to: 'server', effect: 'retry', approval: false, callHash: 'h' };
const ONCE: ToolRoute = { ...RUN, effect: 'once' };
const ASKS: ToolRoute = { ...RUN, approval: true };
const CLIENT: ToolRoute = { to: 'client' };
const inOrder = (route: Extract<ToolRoute, { to: 'server' }>, isReadOnly?: true): ToolRoute => {
  return { ...route, order: { server: 's', ...(isReadOnly && { isReadOnly }) } };
};

const calls = (...routes: ToolRoute[]): ModelMessage => messageWith(...routes);
const DONE = modelMessage({ content: 'Done.' });

function agent(n: number, fields: Partial<SubAgent> = {}): SubAgent {
  const parent = { threadId: 'main', toolCallId: `call_${n}` };
  const rest = { title: 't', depth: 1, specHash: 'a', hasServers: false, iterations: 5 };
  return { threadId: `thr_${n}`, parent, ...rest, ...fields };
}

/** A message of the root agent that starts sub-agents. */
function starts(...agents: SubAgent[]): [ModelMessage, ...NewRecord[]] {
  const routes = agents.map(({ threadId }): ToolRoute => ({ to: 'thread', threadId }));
  return [
    calls(...routes),
    ...agents.map((thread): NewRecord => ({ kind: 'thread.created', at: AT, thread, input: 'do' })),
  ];
}

/** The end of a sub-agent, with its answer. */
function ended({ threadId, title, parent }: SubAgent): NewRecord[] {
  return [
    { kind: 'thread.done', at: AT, threadId, title, parent, end: { status: 'done' } },
    { kind: 'tool.response', at: AT, ...parent, outcome: 'succeeded', content: 'x', fromThread: threadId },
  ];
}

const BOTH = test.each([
  ['a turn that ends when it needs answers', {}],
  ['a turn that waits', { pause: 'wait' }],
] satisfies [string, Partial<TurnStart>][]);

BOTH('%s calls its model, runs the calls, and calls the model again', (_, start) => {
  const run = new PlayedRun(start);
  expect(run.task()).toEqual(['main model']);
  run.answers(calls(RUN, ONCE));
  expect(run.task()).toEqual(['main call_0', 'main call_1']);
  run.returns('call_0');
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.returns('call_1');
  expect(run.task()).toEqual(['main model']);
  run.answers(DONE);
  expect([run.task(), run.end]).toEqual([[], { status: 'done' }]);
});

test.each<[string, Partial<TurnStart>, number]>([
  ['50 of its root agent', {}, 50],
  ['one of its root agent in sequence', { callsInSequence: true }, 1],
  ['50 of its root agent, in a turn that waits', { pause: 'wait' }, 50],
  ['one of its root agent in sequence, in a turn that waits', { pause: 'wait', callsInSequence: true }, 1],
])('of the calls of a message a turn runs at once %s', (_, start, lanes) => {
  const run = new PlayedRun(start);
  run.task();
  run.answers(calls(...Array.from({ length: 60 }, () => RUN)));
  expect(run.task()).toHaveLength(lanes);
  run.returns('call_0');
  expect(run.task()).toEqual([`main call_${lanes}`]);
});

BOTH('%s runs ten calls of a sub-agent at once', (_, start) => {
  const run = new PlayedRun({ ...start, callsInSequence: true });
  run.task();
  run.answers(...starts(agent(0)));
  expect(run.task()).toEqual(['thr_0 model']);
  run.answers({ ...calls(...Array.from({ length: 20 }, () => RUN)), threadId: 'thr_0' });
  expect(run.task()).toHaveLength(10);
  run.returns('call_3', 'thr_0');
  expect(run.task()).toEqual(['thr_0 call_10']);
});

BOTH('in %s a call waits behind earlier ones of its server', (_, start) => {
  const run = new PlayedRun(start);
  run.task();
  run.answers(calls(inOrder(RUN), RUN, inOrder(RUN, true), inOrder(RUN, true)));
  expect(run.task()).toEqual(['main call_0', 'main call_1']);
  run.returns('call_1');
  expect(run.task()).toEqual([]);
  run.returns('call_0');
  expect(run.task()).toEqual(['main call_2', 'main call_3']);
});

test('a turn ends with the calls that ask, those that need sign-ins, and those behind them, when nothing else runs', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(calls(inOrder(RUN), inOrder(RUN), RUN, CLIENT, ASKS));
  expect(run.task()).toEqual(['main call_0', 'main call_2']);
  run.needsSignIn('call_0');
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.asks('call_2');
  run.task();
  const pending = run.end?.status === 'waiting' ? run.end.pending : [];
  expect(pending.map(({ toolCallId, needs }) => `${toolCallId} ${needs}`)).toEqual([
    'call_3 response',
    'call_4 approval',
    'call_2 response',
    'call_0 sign_in',
    'call_1 order',
  ]);
});

test('too many questions of servers are answered with a cancellation', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(calls(...Array.from({ length: 34 }, () => RUN)));
  run.task();
  for (let i = 0; i < 33; i++) run.asks(`call_${i}`);
  expect(run.task()).toEqual(['main call_32']);
  const again = run.log
    .running('main')
    .find(({ name, input }) => name === 'callTool' && input.toolCallId === 'call_32');
  expect(again?.input).toMatchObject({ answered: { content: '{"action":"cancel"}' } });
  run.returns('call_32');
  run.returns('call_33');
  run.task();
  expect(run.end).toMatchObject({ status: 'waiting', pending: { length: 32 } });
});

test('the calls that a message asks about leave the room of the questions of servers as it is', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(calls(CLIENT, ASKS, ...Array.from({ length: 32 }, () => RUN)));
  run.task();
  for (let i = 2; i < 34; i++) run.asks(`call_${i}`);
  expect(run.task()).toEqual([]);
  expect(run.end).toMatchObject({ status: 'waiting', pending: { length: 34 } });
});

test('a turn that waits runs the other calls, and the approved one once it is', () => {
  const run = new PlayedRun({ pause: 'wait' });
  run.task();
  run.answers(calls(ASKS, RUN));
  expect(run.task()).toEqual(['main call_1']);
  run.returns('call_1');
  expect([run.task(), run.end, run.actions.pauses.reasons]).toEqual([[], undefined, ['action']]);
  expect(run.task(allow('call_0'))).toEqual(['main call_0']);
  run.returns('call_0');
  expect(run.task()).toEqual(['main model']);
});

function allow(toolCallId: string, threadId = 'main'): Pick<TurnCommand, 'type'> {
  const answer = { type: 'user.tool_approval', threadId, toolCallId, approval: { status: 'allow' } };
  return { type: 'answer', answers: [answer], roles: [], mayRespond: true, mayDecide: true } as Pick<
    TurnCommand,
    'type'
  >;
}

test('a paused turn begins nothing, in any thread; the call that its start has begun runs', () => {
  const run = new PlayedRun({ pause: 'wait' });
  expect(run.task({ type: 'pause' })).toEqual(['main model']);
  run.answers(...starts(agent(0)));
  expect(run.task()).toEqual([]);
  expect(run.task({ type: 'resume' })).toEqual(['thr_0 model']);
  run.answers({ ...calls(RUN), threadId: 'thr_0' });
  expect(run.task({ type: 'pause' })).toEqual([]);
  expect([run.task({ type: 'resume' }), run.end]).toEqual([['thr_0 call_0'], undefined]);
});

test('a command applies to what begins in its task, except the call that the start has begun', () => {
  const run = new PlayedRun({ pause: 'wait' });
  expect(run.task({ type: 'force_answer' })).toEqual(['main model']);
  expect(run.log.running()[0]?.input).not.toHaveProperty('isForced');
  run.answers(calls(RUN));
  run.task();
  run.returns('call_0');
  run.task();
  expect(run.log.running()[0]?.input).toMatchObject({ isForced: true });
});

test('sub-agents get slots in the order in which they have something to do, and leave them while they do nothing', () => {
  const [a, b, c] = [agent(0), agent(1), agent(2)];
  const run = new PlayedRun({ pause: 'wait', limits: { ...turnStart().limits, subAgents: 1 } });
  run.task();
  run.answers(...starts(a, b, c));
  expect(run.task()).toEqual(['thr_0 model']);
  // It waits for a person, and leaves its slot.
  run.answers({ ...calls(ASKS), threadId: 'thr_0' });
  expect(run.task()).toEqual(['thr_1 model']);
  // Approved, it is the last to ask for one.
  expect(run.task(allow('call_0', 'thr_0'))).toEqual([]);
  run.answers({ ...DONE, threadId: 'thr_1' }, ...ended(b));
  expect(run.task()).toEqual(['thr_2 model']);
  // It keeps its slot from its model to its calls.
  run.answers({ ...calls(RUN), threadId: 'thr_2' });
  expect(run.task()).toEqual(['thr_2 call_0']);
  run.returns('call_0', 'thr_2');
  expect(run.task()).toEqual(['thr_2 model']);
  run.answers({ ...DONE, threadId: 'thr_2' }, ...ended(c));
  expect(run.task()).toEqual(['thr_0 call_0']);
});

test('a parent calls its model when its calls and its sub-agents have ended', () => {
  const run = new PlayedRun();
  run.task();
  const [message, ...created] = starts(agent(0));
  run.answers({ ...message, toolCalls: [...message.toolCalls, ...calls(RUN, RUN).toolCalls.slice(1)] }, ...created);
  expect(run.task()).toEqual(['main call_1', 'thr_0 model']);
  run.returns('call_1');
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.answers({ ...DONE, threadId: 'thr_0' }, ...ended(agent(0)));
  expect(run.task()).toEqual(['main model']);
});

test('a turn ends with the calls of its sub-agents when all of them wait; parents stand before their sub-agents', () => {
  const inner = agent(9, { threadId: 'thr_9', depth: 2, parent: { threadId: 'thr_0', toolCallId: 'call_0' } });
  const run = new PlayedRun();
  run.task();
  run.answers(...starts(agent(0), agent(1)));
  run.task();
  const [message] = starts(inner);
  run.answers({ ...message, threadId: 'thr_0' }, { kind: 'thread.created', at: AT, thread: inner, input: 'do' });
  run.answers({ ...calls(ASKS), threadId: 'thr_1' });
  expect(run.task()).toEqual(['thr_9 model']);
  run.answers({ ...calls(CLIENT), threadId: 'thr_9' });
  run.task();
  expect(run.end).toMatchObject({
    status: 'waiting',
    pending: [{ threadId: 'thr_1' }, { threadId: 'thr_9' }],
    threads: [
      { threadId: 'thr_0', steps: 1 },
      { threadId: 'thr_1', steps: 1 },
      { threadId: 'thr_9', steps: 1 },
    ],
  });
});

/** The servers of the root agent's model need sign-ins. */
function signInRequired(...signInIds: string[]): NewRecord {
  const servers = signInIds.map((signInId) => ({ id: 's', name: 's', signInId, authUrl: 'https://example.com' }));
  return { kind: 'mcp.auth_required', at: AT, threadId: 'main', servers, calls: [] };
}

const SIGNED_IN = { type: 'sign_in', signInId: 'sig_1', by: SUBJECT } as const;

test('a thread whose model needs a sign-in ends the turn with its sub-agents, or waits for it', () => {
  const ending = new PlayedRun();
  ending.task();
  ending.model('main', { status: 'sign_in_required' }, signInRequired());
  ending.task();
  expect(ending.end).toEqual({ status: 'waiting', pending: [] });
  const waiting = new PlayedRun({ pause: 'wait' });
  waiting.task();
  waiting.model('main', { status: 'sign_in_required' }, signInRequired('sig_1'));
  expect([waiting.task(), waiting.end, waiting.actions.pauses.reasons]).toEqual([[], undefined, ['sign_in']]);
  expect(waiting.task(SIGNED_IN)).toEqual(['main model']);
});

test('a run that drains continues although its model waits for a sign-in', () => {
  const run = new PlayedRun({ pause: 'wait' });
  run.task();
  run.model('main', { status: 'sign_in_required' }, signInRequired('sig_1'));
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.set({ isDraining: true });
  expect(run.end).toEqual({ status: 'continue' });
});

test('a turn at its limit ends, unless it answers then; a steer at the limit is left to the next turn', () => {
  const limits = { ...turnStart().limits, iterations: 1 };
  const run = new PlayedRun({ limits });
  run.task();
  run.answers(calls(RUN));
  run.task();
  run.returns('call_0');
  run.task();
  expect(run.end).toMatchObject({ status: 'error', code: 'iteration_limit' });
  const steered = new PlayedRun({ limits });
  steered.task();
  steered.answers(DONE);
  expect([steered.task(STEER), steered.end]).toEqual([[], { status: 'done' }]);
});

const STEER = { type: 'steer', sessionId: 'ses_1', messages: ['And then?'] } as Pick<TurnCommand, 'type'>;

test('a message that arrives while the model answers is answered by the next call, also with a run that drains', () => {
  const run = new PlayedRun();
  run.task();
  expect(run.task(STEER)).toEqual([]);
  run.answers(DONE);
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toMatchObject([[], { status: 'continue' }]);
  run.set({ isDraining: false });
  expect(run.task()).toEqual(['main model']);
  run.set({ isStopping: true });
  run.answers(DONE);
  expect([run.task(), run.end]).toEqual([[], { status: 'done' }]);
});

test('a run that drains begins no model call, runs what is ready, and continues when nothing runs', () => {
  const run = new PlayedRun({ pause: 'wait' });
  run.task();
  run.answers(...starts(agent(0), agent(1)));
  run.task();
  run.answers({ ...calls(RUN, ASKS), threadId: 'thr_0' });
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toEqual([['thr_0 call_0'], undefined]);
  run.answers({ ...calls(RUN), threadId: 'thr_1' });
  expect(run.task()).toEqual(['thr_1 call_0']);
  run.returns('call_0', 'thr_0');
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.returns('call_0', 'thr_1');
  expect([run.task(), run.end]).toMatchObject([[], { status: 'continue' }]);
});

test('a turn that stops begins nothing, and ends when nothing runs', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(calls(RUN, inOrder(RUN), inOrder(RUN)));
  run.task();
  run.set({ isStopping: true });
  run.returns('call_1');
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.ends('main call_0', { how: 'cancelled', started: true });
  expect([run.task(), run.end]).toEqual([[], { status: 'stopped' }]);
});

test('a turn that ends if a call has no result begins no more calls; its sub-agents end first', () => {
  const run = new PlayedRun({ failsWithTools: true });
  run.task();
  const [message, ...created] = starts(agent(0));
  const more = calls(RUN, inOrder(RUN), inOrder(RUN)).toolCalls.slice(1);
  run.answers({ ...message, toolCalls: [...message.toolCalls, ...more] }, ...created);
  expect(run.task()).toEqual(['main call_1', 'thr_0 model']);
  run.returns('call_1', 'main', { noResult: 'client' });
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.answers({ ...DONE, threadId: 'thr_0' }, ...ended(agent(0)));
  expect([run.task(), run.end]).toMatchObject([[], { status: 'error', code: 'tool_failed' }]);
});

describe('a turn that ends once a person has denied a call', () => {
  const verdict = (n: number, approval: Approval): InputItem => {
    return { type: 'user.tool_approval', threadId: 'main', toolCallId: `r${n}`, approval };
  };
  const resumed = (...approvals: Approval[]) => ({
    endsOnDenial: true as const,
    resumes: { pending: leftCalls(approvals.length, { needs: 'approval' }) },
    input: approvals.map((approval, n) => verdict(n, approval)),
  });
  const [ALLOW, DENY] = [{ status: 'allow' }, { status: 'deny' }] as const;
  const said = modelMessage({ content: 'I will try.' });
  /** The last text of the root agent, from an earlier turn or run, is read without a call of its model. */
  const findsOutput = (run: PlayedRun): void => {
    expect(run.modelInput('main').ends).toBe('denial');
    const end: ActivityResult = { how: 'completed', records: [], outcome: { status: 'ended' }, output: said };
    // Other work continues.
    expect(run.ends('main model', end)).toEqual([]);
  };
  const closed = (run: PlayedRun) => {
    const close: WorkflowClose = { how: 'completed', result: { status: 'done', pending: [] } };
    return run.log.feed({ type: 'closed', at: AT, close }).at(-1)?.record;
  };

  test('calls no model after that, and ends with what the agent has said before', () => {
    const run = new PlayedRun(resumed(DENY));
    expect(run.task()).toEqual(['main model']);
    findsOutput(run);
    expect([run.task(), run.end]).toEqual([[], { status: 'done' }]);
    const end = { status: 'done', output: said, endedBy: 'denial', requiredActions: [] };
    expect(closed(run)).toMatchObject({ end });
  });

  test('ends with the message of this turn, if there is one', () => {
    const run = new PlayedRun({ pause: 'wait', endsOnDenial: true });
    run.task();
    const asking = { ...calls(ASKS), content: 'May I?' };
    run.answers(asking);
    run.task();
    expect([run.task(decides('ann', 'call_0', DENY)), run.end]).toEqual([[], { status: 'done' }]);
    expect(closed(run)).toMatchObject({ end: { output: { content: 'May I?' } } });
  });

  test('runs what was allowed first, also in another run', () => {
    const run = new PlayedRun(resumed(DENY, ALLOW));
    expect([run.task(), run.end]).toEqual([['main r1'], undefined]);
    run.returns('r1');
    for (const one of [run.again(), run]) {
      expect(one.task()).toEqual(['main model']);
      findsOutput(one);
      expect([one.task(), one.end]).toEqual([[], { status: 'done' }]);
    }
  });

  test('waits for no other call that is asked about, also in another run', () => {
    const run = new PlayedRun({ pause: 'wait', endsOnDenial: true });
    run.task();
    run.answers(calls(ASKS, ASKS));
    run.task();
    run.task(decides('ann', 'call_0', DENY));
    expect(run.end).toEqual({ status: 'done' });
    const next = run.again();
    expect(next.task()).toEqual(['main model']);
    findsOutput(next);
    expect([next.task(), next.end]).toEqual([[], { status: 'done' }]);
  });

  test('calls its model if all was allowed, or the agent does not say so', () => {
    const { endsOnDenial: _, ...telling } = resumed(DENY);
    expect(new PlayedRun(telling).task()).toEqual(['main model']);
    const run = new PlayedRun(resumed(ALLOW));
    run.task();
    run.returns('r0');
    expect(run.task()).toEqual(['main model']);
  });
});

describe('a turn whose request allows so many rounds', () => {
  const limits = { ...turnStart().limits, rounds: 2 };
  const endOf = (run: PlayedRun, result: TurnResult) => {
    const done = run.log.feed({ type: 'closed', at: AT, close: { how: 'completed', result } }).at(-1)?.record;
    return done?.kind === 'turn.done' ? done.end : undefined;
  };

  test('ends after the calls of the last one, also in another run, and leaves messages to the next turn', () => {
    const run = new PlayedRun({ limits });
    run.task();
    run.answers(calls(RUN));
    run.task();
    run.returns('call_0');
    expect(run.task()).toEqual(['main model']);
    run.answers(calls(RUN, RUN));
    run.task(STEER);
    run.returns('call_0');
    expect([run.task(), run.end]).toEqual([[], undefined]);
    run.returns('call_1');
    expect(run.again().end).toEqual({ status: 'done' });
    expect([run.task(), run.end]).toEqual([[], { status: 'done' }]);
    expect(endOf(run, { status: 'done', pending: [] })).toMatchObject({ endedBy: 'max_turns', requiredActions: [] });
  });

  test('ends as any other if its last message is an answer, or asks people', () => {
    const answered = new PlayedRun({ limits: { ...limits, rounds: 1 } });
    answered.task();
    answered.answers(DONE);
    expect([answered.task(STEER), answered.end]).toEqual([[], { status: 'done' }]);
    expect(endOf(answered, { status: 'done', pending: [] })).not.toHaveProperty('endedBy');
    const asking = new PlayedRun({ limits: { ...limits, rounds: 1 } });
    asking.task();
    asking.answers(calls(ASKS));
    asking.task();
    const pending = asking.end?.status === 'waiting' ? asking.end.pending : [];
    expect(pending).toHaveLength(1);
    expect(endOf(asking, { status: 'done', pending })).not.toHaveProperty('endedBy');
  });
});

test('a turn in which a call has no result is paused while only its sub-agents wait for people', () => {
  const run = new PlayedRun({ pause: 'wait', failsWithTools: true, callsInSequence: true });
  run.task();
  const [message, ...created] = starts(agent(0));
  run.answers(
    { ...message, toolCalls: [...message.toolCalls, ...calls(RUN, ONCE, ONCE).toolCalls.slice(1)] },
    ...created,
  );
  expect(run.task()).toEqual(['main call_1', 'thr_0 model']);
  run.ends('main call_1', { how: 'timed_out' });
  run.answers({ ...calls(ASKS), threadId: 'thr_0' });
  expect([run.task(), run.end, run.actions.isPaused]).toEqual([[], undefined, true]);
});

test('a person is asked about an unknown outcome only if the call may have had an effect', () => {
  const run = new PlayedRun({ pause: 'wait', onUnknown: 'ask' });
  run.task();
  run.answers(calls(RUN, ONCE));
  run.task();
  for (const name of ['main call_0', 'main call_1']) run.ends(name, { how: 'timed_out' });
  expect(run.actions.questions.unanswered).toMatchObject([
    { toolCallId: 'call_1', unknownOutcome: expect.any(String) as string },
  ]);
});

test('what is unknown of a call stays so while it waits for a sign-in', () => {
  const run = new PlayedRun({ pause: 'wait', onUnknown: 'ask' });
  run.task();
  run.answers(calls(ONCE));
  run.task();
  run.ends('main call_0', { how: 'timed_out' });
  run.task();
  const allow = { type: 'user.tool_approval', threadId: 'main', toolCallId: 'call_0', approval: { status: 'allow' } };
  const answer = { type: 'answer', answers: [allow], roles: [], owner: 'ann', mayDecide: true, mayRespond: true };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as complete as a test needs
  expect(run.task(answer as Pick<TurnCommand, 'type'>)).toEqual(['main call_0']);
  run.needsSignIn('call_0');
  expect(run.actions.questions.unanswered).toMatchObject([
    { needs: 'sign_in', unknownOutcome: expect.any(String) as string },
  ]);
});

test('a paused turn does not end at its limit before it is resumed', () => {
  const run = new PlayedRun({ limits: { ...turnStart().limits, iterations: 1 } });
  run.task();
  run.answers(calls(RUN));
  run.task();
  run.task({ type: 'pause' });
  run.returns('call_0');
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.task({ type: 'resume' });
  expect(run.end).toMatchObject({ status: 'error', code: 'iteration_limit' });
});

test('a turn in which a call has no result ends with its run that drains: its sub-agents do not continue', () => {
  const run = new PlayedRun({ failsWithTools: true });
  run.task();
  const [message, ...created] = starts(agent(0));
  run.answers({ ...message, toolCalls: [...message.toolCalls, ...calls(RUN, RUN).toolCalls.slice(1)] }, ...created);
  expect(run.task()).toEqual(['main call_1', 'thr_0 model']);
  run.returns('call_1', 'main', { noResult: 'client' });
  run.answers({ ...calls(RUN), threadId: 'thr_0' });
  run.set({ isDraining: true });
  expect(run.task()).toEqual(['thr_0 call_0']);
  run.returns('call_0', 'thr_0');
  expect([run.task(), run.end]).toMatchObject([[], { status: 'error', code: 'tool_failed' }]);
});

test('the model of a sub-agent reads that a call has no result, also in a turn that ends if one of its own has none', () => {
  const run = new PlayedRun({ failsWithTools: true });
  run.task();
  run.answers(...starts(agent(0)));
  run.task();
  run.answers({ ...calls(RUN), threadId: 'thr_0' });
  run.task();
  run.returns('call_0', 'thr_0', { noResult: 'client' });
  expect([run.task(), run.end]).toEqual([['thr_0 model'], undefined]);
});

/** A call that an earlier turn has left. */
const NEEDING_SIGN_IN: PendingCall = {
  threadId: 'main',
  toolCallId: 'a',
  needs: 'sign_in',
  source: { turnId: 't', messageId: 'm', stamp: 's', index: 0, run: { effect: 'retry', callHash: 'h' } },
};

test('a turn that answers calls connects to its servers first; registered sub-agents do so themselves', () => {
  const threads = [{ ...agent(0, { agent: 'helper', hasServers: true }), steps: 0 }];
  const run = new PlayedRun({ hasServers: true, resumes: { pending: [NEEDING_SIGN_IN], threads } });
  expect(run.task()).toEqual(['main connect']);
  expect([run.task(), run.end]).toEqual([[], undefined]);
  run.ends('main connect', { how: 'timed_out' });
  expect(run.task()).toEqual(['main a', 'thr_0 connect']);
  run.ends('thr_0 connect', { how: 'completed', stamp: 's', records: [] });
  expect(run.task()).toEqual(['thr_0 model']);
});

test('a registered sub-agent that has called its model does not connect first when it continues', () => {
  const threads = [{ ...agent(0, { agent: 'helper', hasServers: true }), steps: 1 }];
  expect(new PlayedRun({ resumes: { pending: [], threads } }).task()).toEqual(['thr_0 model']);
});

test.each<[string, ActivityResult, object]>([
  ['failed', { how: 'failed', message: 'no' }, { status: 'error', message: 'no' }],
  ['timed out', { how: 'timed_out' }, { status: 'error', message: 'A model call was lost.' }],
  ['was cancelled', { how: 'cancelled', started: true }, { status: 'stopped' }],
  ['has no message', completed({ status: 'answered' }), { status: 'error', message: 'A model call has no message.' }],
  ['ended with an error', completed({ status: 'error', message: 'x' }), { status: 'error', message: 'x' }],
  ['was cut off', completed({ status: 'answered' }, { ...DONE, finishReason: 'length' }), { status: 'error' }],
  [
    'may be cut off',
    completed({ status: 'answered', mayBeCutOff: true }, { ...DONE, finishReason: 'length' }),
    { status: 'done' },
  ],
])('a turn whose model call %s', (_, end, expected) => {
  const run = new PlayedRun();
  run.task();
  run.ends('main model', end);
  run.task();
  expect(run.end).toMatchObject(expected);
});

function completed(outcome: CallModelResult['outcome'], ...records: NewRecord[]): ActivityResult {
  return { how: 'completed', stamp: 's', records, outcome };
}

test('agents of other sessions are to answer once, when the turn is to answer', () => {
  const run = new PlayedRun({ pause: 'wait' });
  run.task();
  run.answers(calls({ to: 'session', sessionId: 'ses_2', agent: 'b', callHash: 'h' } as unknown as ToolRoute));
  run.task();
  run.ends('main call_0', { how: 'completed', stamp: 's', records: [], isDelegated: true });
  expect([run.task(), run.end]).toEqual([[], undefined]);
  expect(run.task({ type: 'force_answer' })).toEqual(['force ses_2']);
  run.set({ forced: new Set(['ses_2']) });
  expect(run.task()).toEqual([]);
});

test('a call whose message was compacted or refused for a budget is planned again, with its first message', () => {
  const run = new PlayedRun({ hasServers: true });
  run.task();
  const [first] = run.log.running();
  run.model('main', { status: 'compacted' });
  expect(run.task()).toEqual(['main model']);
  const [again] = run.log.running();
  expect(again?.input).toEqual({ ...first?.input, upTo: again?.name === 'callModel' && again.input.upTo });
});

test('a sub-agent has a limit of its own: that of the turn neither ends its calls nor forces its answer', () => {
  const limits = { ...turnStart().limits, iterations: 2, answersAtIterations: true } as const;
  const run = new PlayedRun({ limits });
  run.task();
  run.answers(...starts(agent(0, { iterations: 1 }), agent(1, { iterations: 3 })));
  run.task();
  expect(run.modelInput('thr_0')).toMatchObject({ step: 1, isLast: true });
  run.answers({ ...calls(RUN), threadId: 'thr_1' });
  run.task();
  run.returns('call_0', 'thr_1');
  run.task();
  const second = run.modelInput('thr_1');
  expect(second.step).toBe(2);
  expect(second).not.toHaveProperty('isLast');
  expect(second).not.toHaveProperty('isForced');
});

test.each([
  ['connects to the servers, if each one before found that one is missing', false, { step: 2, connectsServers: true }],
  ['does not connect to the servers, if one before it has answered', true, { step: 3 }],
])('the model call after a sign-in %s', (_, hasAnswered, expected) => {
  const run = new PlayedRun({ pause: 'wait', hasServers: true });
  run.task();
  if (hasAnswered) {
    run.answers(calls(RUN));
    run.task();
    run.returns('call_0');
    run.task();
  }
  run.model('main', { status: 'sign_in_required' }, signInRequired('sig_1'));
  run.task();
  expect(run.task(SIGNED_IN)).toEqual(['main model']);
  const { step, connectsServers } = run.modelInput('main');
  expect({ step, ...(connectsServers && { connectsServers }) }).toEqual(expected);
});

test('a turn with a message asks for no sign-in of an earlier turn again; a run asks for those of the run before', () => {
  const call = { ...NEEDING_SIGN_IN, signInId: 'sig_1' };
  const first = new PlayedRun({ resumes: { pending: [call] } });
  const carry = continuation(first.actions.state);
  expect(first.task()).toEqual(['main a']);
  expect(first.log.running()[0]?.input).toMatchObject({ signIn: { id: 'sig_1', mayRepeat: false } });
  const next = new PlayedRun({ carry });
  expect(next.task()).toEqual(['main a']);
  expect(next.log.running()[0]?.input).toMatchObject({ signIn: { id: 'sig_1', mayRepeat: true } });
});

/** Calls to one server that an earlier turn has left, in their order. */
function leftCalls(count: number, rest: Partial<PendingCall>): PendingCall[] {
  return Array.from({ length: count }, (_, index) => {
    const run = { effect: 'retry' as const, callHash: 'h', order: { server: 's' } };
    const source = { turnId: 't', messageId: 'm', stamp: 's', index, run };
    return { threadId: 'main', toolCallId: `r${index}`, needs: 'order', source, ...rest };
  });
}

const responseTo = (toolCallId: string, content: string): InputItem => {
  return { type: 'user.tool_response', threadId: 'main', toolCallId, content };
};

test('a call that waits for its turn keeps the answer to the question of its server for the next turn', () => {
  const elicitation = { question: '{"message":"Which?"}', state: { blob: 'b' } };
  const run = new PlayedRun({
    resumes: { pending: leftCalls(2, { needs: 'response', elicitation }) },
    input: [responseTo('r0', 'zero'), responseTo('r1', 'one')],
  });
  expect(run.task()).toEqual(['main r0']);
  run.asks('r0');
  run.task();
  const [asking, held] = run.left;
  expect(asking).toMatchObject({ toolCallId: 'r0', needs: 'response' });
  const answered = { elicitation, content: 'one' };
  expect(held).toMatchObject({ toolCallId: 'r1', needs: 'order', answered });
  const next = new PlayedRun({ resumes: { pending: run.left }, input: [responseTo('r0', 'again')] });
  expect(next.task()).toEqual(['main r0']);
  next.returns('r0');
  expect(next.task()).toEqual(['main r1']);
  expect(next.toolInput('r1')).toMatchObject({ answered });
});

const EDITED = { arguments: '{"to":"bob"}', hash: 'e' };

test('a call that was approved with edited arguments runs with those in the turn that resumes it', () => {
  const approval = { status: 'allow', edited: EDITED } as const;
  const run = new PlayedRun({
    resumes: { pending: leftCalls(1, { needs: 'approval' }) },
    input: [{ type: 'user.tool_approval', threadId: 'main', toolCallId: 'r0', approval }],
  });
  expect(run.task()).toEqual(['main r0']);
  expect(run.toolInput('r0').edited).toEqual(EDITED);
});

/** A subject decides on a call of the root agent. */
function decides(
  name: string,
  toolCallId: string,
  approval: Extract<InputItem, { type: 'user.tool_approval' }>['approval'],
): AnswerCommand {
  return {
    type: 'answer',
    id: `req_${name}_${approval.status}`,
    subject: { subjectId: name, subjectType: 'user', subjectSlug: name },
    answers: [{ type: 'user.tool_approval', threadId: 'main', toolCallId, approval }],
    roles: [],
    mayDecide: true,
    mayRespond: true,
  };
}

test('the next run of a turn has the decider of a call that has a result', () => {
  const run = new PlayedRun({ pause: 'wait' });
  run.task();
  run.answers(calls(ASKS, ASKS));
  run.task();
  const allowed = decides('ann', 'call_0', { status: 'allow' });
  expect(run.task(allowed)).toEqual(['main call_0']);
  run.returns('call_0');
  run.task();
  run.set({ isDraining: true });
  expect(run.end).toEqual({ status: 'continue' });
  const next = run.again();
  expect(next.actions.refuse(decides('bob', 'call_0', { status: 'deny' }))).toMatchObject({ code: 'already_decided' });
  const { verdicts, repeated } = next.log.taskEnded(NOW, [allowed]);
  expect(verdicts.get(allowed.id)).toBeUndefined();
  expect(repeated.get(allowed.id)).toMatchObject([{ toolCallId: 'call_0' }]);
});

const ENDS: ApprovalPolicy = { quorum: 1, onExpiry: 'end', expiresInSeconds: 20 };

test('the failure of the turn names the first of the approvals that expire in one task', () => {
  const run = new PlayedRun({ pause: 'wait' });
  run.task();
  run.answers(calls({ ...RUN, approval: true, policy: ENDS }, { ...RUN, approval: true, policy: ENDS }));
  run.task();
  run.now += 20_000;
  run.task();
  expect(run.actions.failure).toEqual({ message: 'The approval of tool call call_0 expired.' });
});

test('an approval that expires after the turn has waited for too long does not change its failure', () => {
  const run = new PlayedRun({ pause: 'wait', limits: { ...turnStart().limits, actionSeconds: 10 } });
  run.task();
  run.answers(calls({ ...RUN, approval: true, policy: ENDS }));
  run.task();
  run.now += 10_000;
  run.task();
  const { failure } = run.actions;
  expect(failure).toMatchObject({ code: 'action_expired' });
  run.now += 10_000;
  run.task();
  expect(run.actions.failure).toEqual(failure);
});

test('a call runs with the arguments of the votes that count, not with those of a vote that a later one has voided', () => {
  const run = new PlayedRun({ pause: 'wait' });
  run.task();
  run.answers(calls({ ...RUN, approval: true, policy: { quorum: 2, onExpiry: 'deny' } }));
  run.task();
  expect(run.task(decides('ann', 'call_0', { status: 'allow', edited: EDITED }))).toEqual([]);
  expect(run.task(decides('bob', 'call_0', { status: 'allow' }))).toEqual([]);
  expect(run.task(decides('ann', 'call_0', { status: 'allow' }))).toEqual(['main call_0']);
  expect(run.toolInput('call_0')).not.toHaveProperty('edited');
});

test('a paused turn connects no sub-agent; once it is resumed it does so first, also in its next run', () => {
  const play = () => {
    const run = new PlayedRun({ pause: 'wait' });
    run.task();
    run.answers(...starts(agent(0, { agent: 'helper', hasServers: true })));
    expect([run.task({ type: 'pause' }), run.end]).toEqual([[], undefined]);
    return run;
  };
  expect(play().task({ type: 'resume' })).toEqual(['thr_0 connect']);
  const draining = play();
  draining.set({ isDraining: true });
  expect([draining.task(), draining.end]).toEqual([[], { status: 'continue' }]);
  const next = draining.again();
  expect([next.task(), next.end]).toEqual([[], undefined]);
  expect(next.task({ type: 'resume' })).toEqual(['thr_0 connect']);
  next.ends('thr_0 connect', { how: 'completed', stamp: 's', records: [] });
  expect(next.task()).toEqual(['thr_0 model']);
});

test('a turn in which a call has no result ends as stopped if the model call of a sub-agent was cancelled', () => {
  const run = new PlayedRun({ failsWithTools: true });
  run.task();
  const [message, ...created] = starts(agent(0));
  run.answers({ ...message, toolCalls: [...message.toolCalls, ...calls(RUN, RUN).toolCalls.slice(1)] }, ...created);
  run.task();
  run.returns('call_1', 'main', { noResult: 'client' });
  const cancelled = modelMessage({ threadId: 'thr_0', finishReason: 'cancelled' });
  run.model('thr_0', { status: 'cancelled' }, cancelled);
  expect([run.task(), run.end]).toEqual([[], { status: 'stopped' }]);
});

test('a call that needs a sign-in, in a turn that does not wait, stays so when the turn continues as new', () => {
  const run = new PlayedRun();
  run.task();
  const [, ...created] = starts(agent(1));
  run.answers(calls(RUN, { to: 'thread', threadId: 'thr_1' }), ...created);
  expect(run.task()).toEqual(['main call_0', 'thr_1 model']);
  run.needsSignIn('call_0');
  run.answers({ ...calls(RUN), threadId: 'thr_1' });
  run.task();
  run.returns('call_0', 'thr_1');
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toEqual([[], { status: 'continue' }]);
  const next = run.again();
  expect(next.task()).toEqual(['thr_1 model']);
  next.answers({ ...DONE, threadId: 'thr_1' }, ...ended(agent(1)));
  expect([next.task(), next.left]).toMatchObject([[], [{ toolCallId: 'call_0', needs: 'sign_in' }]]);
  const result = turnResult({ status: 'waiting', pending: next.left }, undefined, []);
  const done = next.log.feed({ type: 'closed', at: AT, close: { how: 'completed', result } }).at(-1)?.record;
  expect(done).toMatchObject({
    kind: 'turn.done',
    end: { requiredActions: [{ kind: 'mcp.auth_required', calls: [{ toolCallId: 'call_0' }] }] },
  });
});

test('a turn whose call of unknown outcome a person does not have run again calls its model', () => {
  const run = new PlayedRun({ pause: 'wait', onUnknown: 'ask', failsWithTools: true });
  run.task();
  run.answers(calls(ONCE));
  run.task();
  run.ends('main call_0', { how: 'timed_out' });
  expect([run.task(), run.end]).toEqual([[], undefined]);
  expect(run.task(decides('ann', 'call_0', { status: 'deny' }))).toEqual(['main model']);
  expect(run.end).toBeUndefined();
});

BOTH('%s carries no settled call that no person was asked about', (_, start) => {
  const run = new PlayedRun(start);
  run.task();
  run.answers(calls(...Array.from({ length: 500 }, () => inOrder(RUN))));
  for (let i = 0; i < 500; i++) {
    run.task();
    run.returns(`call_${i}`);
  }
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toEqual([[], { status: 'continue' }]);
  expect(JSON.stringify(run.log.open).length).toBeLessThan(5_000);
});

test('a turn that does not wait carries no settled call, also none that a person was asked about', () => {
  const run = new PlayedRun({
    resumes: { pending: leftCalls(1, { needs: 'approval' }) },
    input: [{ type: 'user.tool_approval', threadId: 'main', toolCallId: 'r0', approval: { status: 'allow' } }],
  });
  run.task();
  run.returns('r0');
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toEqual([[], { status: 'continue' }]);
  expect(run.log.open?.threads[0]?.calls ?? []).toEqual([]);
});

test('the question of a resumed call is asked: the calls behind it, which wait for no answer, take none of the room', () => {
  const [first, ...others] = leftCalls(40, {});
  const run = new PlayedRun({
    pause: 'wait',
    resumes: { pending: [{ ...first!, needs: 'sign_in', signInId: 'sig_1' }, ...others] },
  });
  expect(run.task()).toEqual(['main r0']);
  run.asks('r0');
  expect([run.task(), run.actions.questions.waiting]).toMatchObject([[], [{ toolCallId: 'r0', needs: 'response' }]]);
});

test('a run that drains before the model call that the start has begun makes that one first', () => {
  const run = new PlayedRun({ hasServers: true });
  run.set({ isDraining: true });
  expect([run.task(), run.end]).toEqual([['main model'], undefined]);
  expect(run.modelInput('main').messageId).toBe(firstCallOf(turnStart()).messageId);
  run.answers(calls(RUN));
  expect(run.task()).toEqual(['main call_0']);
  run.returns('call_0');
  expect([run.task(), run.end]).toEqual([[], { status: 'continue' }]);
});

/** The records of the log on calls that have ended. */
function endsOf(entries: ReturnType<Turn['ended']>): unknown[] {
  return entries.flatMap(({ record }) =>
    record.kind === 'tool.response' ? [[record.toolCallId, record.outcome, record.execution?.exit]] : [],
  );
}

BOTH('in %s the sandbox is opened once, and cells run in their order beside other calls', (_, start) => {
  const run = new PlayedRun(start);
  run.task();
  run.answers(calls(CELL, RUN, CELL, FILE));
  expect(run.task()).toEqual(['main sandbox', 'main call_1']);
  run.returns('call_1');
  expect(run.task()).toEqual([]);
  run.opens('host');
  expect([run.task(), run.log.sandboxHost]).toEqual([['main call_0', 'main call_3'], 'host']);
  run.returns('call_3');
  run.returns('call_0');
  expect(run.task()).toEqual(['main call_2']);
  run.returns('call_2');
  expect(run.task()).toEqual(['main model']);
  // The next message finds it open.
  run.answers(calls(CELL));
  expect(run.task()).toEqual(['main call_0']);
});

test('one thread opens the sandbox for all', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(...starts(agent(0), agent(1)));
  run.task();
  run.answers({ ...calls(CELL), threadId: 'thr_0' });
  run.answers({ ...calls(CELL), threadId: 'thr_1' });
  expect(run.task()).toEqual(['thr_0 sandbox']);
  run.opens('host', 'thr_0');
  expect(run.task()).toEqual(['thr_0 call_0', 'thr_1 call_0']);
});

test('the next run of a turn asks again where the sandbox is', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(calls(CELL));
  run.task();
  run.opens('host');
  run.task();
  run.returns('call_0');
  run.set({ isDraining: true });
  run.task();
  const next = run.again();
  next.task();
  next.answers(calls(CELL));
  expect(next.task()).toEqual(['main sandbox']);
});

test('a call that its host has not begun runs on another one, unless too many hosts are lost', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(calls(CELL));
  for (const host of ['first', 'second']) {
    expect(run.task()).toEqual(['main sandbox']);
    run.opens(host);
    expect(run.task()).toEqual(['main call_0']);
    run.loses('call_0', true);
  }
  run.task();
  run.opens('third');
  run.task();
  run.loses('call_0', true);
  expect(run.task()).toEqual(['main model']);
});

test('a cell whose host is lost while it runs has an unknown outcome, and one without a host has not run', () => {
  const run = new PlayedRun();
  run.task();
  run.answers(calls(CELL, CELL, FILE));
  run.task();
  run.opens('host');
  run.task();
  const { actions } = run;
  run.loses('call_0');
  run.loses('call_2');
  expect(actions.unsettled('main').map(({ toolCallId }) => toolCallId)).toEqual(['call_1']);
  // The host of the next cell is looked for with it.
  expect(run.task()).toEqual(['main call_1']);
});

test('without a host that opens a sandbox, calls fail and others run', () => {
  const log = new Turn();
  log.started(turnStart());
  log.scheduled(1, {
    name: 'callModel',
    input: { ...firstCallOf(turnStart()), turnId: 't', sessionId: 's', step: 1, recent: [] },
  });
  log.ended(1, AT, {
    how: 'completed',
    stamp: 's',
    records: [calls(CELL, RUN, FILE, CELL)],
    outcome: { status: 'answered' },
  });
  const input = { turnId: 't', sessionId: 's', threadId: 'main', specHash: 'h' };
  log.scheduled(2, { name: 'openSandbox', input });
  expect(endsOf(log.ended(2, AT, { how: 'timed_out' }))).toEqual([
    ['call_0', 'failed', 'not_started'],
    ['call_2', 'failed', 'not_started'],
    ['call_3', 'failed', 'not_started'],
  ]);
  expect(log.actions?.working('main').ready.map(({ toolCallId }) => toolCallId)).toEqual(['call_1']);
});
