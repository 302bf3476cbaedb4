import { expect, test } from 'vitest';
import { activityOf } from '../../test/support/logged-run.ts';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import { PlayedRun, SUBJECT } from '../../test/support/played-run.ts';
import { turnStart } from '../../test/support/random-turn.ts';
import type { Budget } from './budget.ts';
import { KERNEL } from './call-order.ts';
import type { TurnBounds, TurnStart } from './history.ts';
import type { ApprovalPolicy, ToolRoute } from './records/calls.ts';
import type { NewRecord } from './records/log.ts';
import type { PendingCall } from './records/pending.ts';
import type { SubAgent } from './records/threads.ts';
import { NO_USAGE } from './records/usage.ts';
import type { TurnCommand } from './turn-command.ts';

const AT = '2026-11-28T08:00:00.000Z';

const RUN: ToolRoute = { to: 'server', effect: 'retry', approval: false, callHash: 'h' };
const ONCE: ToolRoute = { ...RUN, effect: 'once' };
const ASKS: ToolRoute = { ...RUN, approval: true };
const CELL: ToolRoute = { ...ONCE, inSandbox: true, order: { server: KERNEL } };

const PARENT = { threadId: 'main', toolCallId: 'call_0' };
const REST = { title: 't', depth: 1, specHash: 'a', hasServers: true, iterations: 5 };
const AGENT: SubAgent = { threadId: 'thr_0', parent: PARENT, ...REST };
const created = (thread: SubAgent): NewRecord => ({ kind: 'thread.created', at: AT, thread, input: 'do' });

const POSITION = { turnId: 't', messageId: 'm', stamp: 's', index: 0 };

/** A call of an earlier turn, which has waited for a sign-in. */
function left(toolCallId: string): PendingCall {
  const source = { ...POSITION, run: { effect: 'retry' as const, callHash: 'h' } };
  return { threadId: 'main', toolCallId, needs: 'sign_in', signInId: `sig_${toolCallId}`, source };
}

/** A turn that has begun its first model call. */
function begun(start: Partial<TurnStart> = {}): PlayedRun {
  const run = new PlayedRun(start);
  expect(run.task()).toEqual(['main model']);
  return run;
}

/** The model call of the root agent ends with a tool call, which runs. Returns the input of that. */
function callsTool(run: PlayedRun, usage = NO_USAGE): ReturnType<PlayedRun['toolInput']> {
  run.answers({ ...messageWith(RUN), usage });
  expect(run.task()).toEqual(['main call_0']);
  return run.toolInput('call_0');
}

/** The model call of the root agent ends with a tool call, and the next one begins after that. */
function callsAgain(run: PlayedRun, usage = NO_USAGE): void {
  callsTool(run, usage);
  run.returns('call_0');
  expect(run.task()).toEqual(['main model']);
}

/** The root agent starts a sub-agent, which calls its model. */
function delegates(run: PlayedRun): void {
  run.answers(messageWith({ to: 'thread', threadId: AGENT.threadId }), created(AGENT));
  expect(run.task()).toEqual(['thr_0 model']);
}

function allow(toolCallId: string): Pick<TurnCommand, 'type'> {
  const answer = { type: 'user.tool_approval', threadId: 'main', toolCallId, approval: { status: 'allow' } };
  return { type: 'answer', answers: [answer], subject: SUBJECT, mayDecide: true } as Pick<TurnCommand, 'type'>;
}

test('the first model call of a turn has its start; later calls and those of sub-agents do not', () => {
  const run = begun();
  expect(run.modelInput('main').start).toEqual(turnStart());
  callsAgain(run);
  expect(run.modelInput('main')).not.toHaveProperty('start');
  delegates(run);
  expect(run.modelInput('thr_0')).toMatchObject({ step: 1 });
  expect(run.modelInput('thr_0')).not.toHaveProperty('start');
});

test('a start is in the history a second time only if it is small', () => {
  const room = 4096 - JSON.stringify(turnStart({ title: '' })).length;
  expect(begun({ title: 'x'.repeat(room) }).modelInput('main').start).toBeDefined();
  expect(begun({ title: 'x'.repeat(room + 1) }).modelInput('main')).not.toHaveProperty('start');
});

test.each<[string, Partial<TurnBounds>]>([
  ['model calls', { iterations: 2 }],
  ['model calls, if it allows more rounds', { iterations: 2, rounds: 3 }],
  ['rounds, if it allows more model calls', { iterations: 3, rounds: 2 }],
])('a model call is the last one at the limit of its turn: that of %s', (_, limits) => {
  const run = begun({ limits: { ...turnStart().limits, ...limits } });
  expect(run.modelInput('main')).not.toHaveProperty('isLast');
  callsAgain(run);
  expect(run.modelInput('main')).toMatchObject({ step: 2, isLast: true });
});

test('a model call has what is left of the budget of its turn, not of one that the turn shares', () => {
  const afterOne = (scope: Budget['scope']) => {
    const run = begun({ budget: { scope, limit: { tokens: 100, steps: 5 } } });
    callsAgain(run, { ...NO_USAGE, inputTokens: 6, outputTokens: 4 });
    return run.modelInput('main');
  };
  expect(afterOne('turn').left).toEqual({ tokens: 90, steps: 4 });
  expect(afterOne('session')).not.toHaveProperty('left');
});

test('a model call has the time for which its turn was queued and paused, if it was', () => {
  expect(begun().modelInput('main')).not.toHaveProperty('idleMs');
  const at = new Date(Date.parse(turnStart().createdAt) + 5_000).toISOString();
  const run = begun({ pause: 'wait', begun: { at, queuedRunId: 'r' } });
  expect(run.modelInput('main').idleMs).toBe(5_000);
  run.answers(messageWith(ASKS));
  run.task();
  run.now += 2_000;
  expect(run.task(allow('call_0'))).toEqual(['main call_0']);
  run.returns('call_0');
  run.task();
  expect(run.modelInput('main').idleMs).toBe(7_000);
});

const NEXT = { now: Date.parse(AT), recent: ['s'], newMessage: () => ({ messageId: 'msg_2', createdAt: AT }) };

test('a model call has the small results of kernel hosts', () => {
  const ofHosts = [{ stamp: 's', records: [] }];
  const { log } = new PlayedRun();
  const { input } = activityOf(
    { name: 'callModel', threadId: 'main' },
    { start: turnStart(), log },
    { ...NEXT, ofHosts },
  );
  expect(input).toMatchObject({ recent: ['s'], ofHosts });
});

/** A turn that runs the call that an earlier one has left, and then calls its model for the first time. */
function resumed(hasServers: boolean): PlayedRun {
  const run = new PlayedRun({ pause: 'wait', hasServers, resumes: { pending: [left('a')] } });
  run.task();
  if (hasServers) {
    run.ends('main connect', { how: 'completed', stamp: 's', records: [] });
    run.task();
  }
  run.returns('a');
  expect(run.task()).toEqual(['main model']);
  return run;
}

const SIGNED_IN = { type: 'sign_in', signInId: 'sig_1', by: SUBJECT } as const;

test('the first message of a turn that has connected its servers records none, but one after a sign-in does', () => {
  const run = resumed(true);
  expect(run.modelInput('main')).not.toHaveProperty('connectsServers');
  const servers = [{ id: 's', name: 's', signInId: 'sig_1', authUrl: 'https://x/' }];
  const required: NewRecord = { kind: 'mcp.auth_required', at: AT, threadId: 'main', servers, calls: [] };
  run.model('main', { status: 'sign_in_required' }, required);
  run.task();
  expect(run.task(SIGNED_IN)).toEqual(['main model']);
  expect(run.modelInput('main')).toMatchObject({ step: 2, connectsServers: true });
});

test('neither a message of a turn without servers records any, nor one of a sub-agent', () => {
  expect(resumed(false).modelInput('main')).not.toHaveProperty('connectsServers');
  const run = begun({ hasServers: true });
  delegates(run);
  expect(run.modelInput('thr_0')).not.toHaveProperty('connectsServers');
});

test('a call that was neither asked about nor tried before has only its position, its owner and its source', () => {
  const { turnId, sessionId, specHash, owner } = turnStart();
  expect(callsTool(begun({ onUnknown: 'ask' }))).toEqual({
    ...PARENT,
    turnId,
    sessionId,
    specHash,
    owner,
    source: { turnId, messageId: 'msg_1', stamp: 's', index: 0, run: { effect: 'retry', callHash: 'h' } },
    runId: 'r',
    deadline: 0,
  });
});

test('a call of a run of the Runs API is marked as such', () => {
  expect(callsTool(begun({ isRun: true })).isRun).toBe(true);
});

const POLICY: ApprovalPolicy = { quorum: 1, onExpiry: 'deny', excludeRequester: true };
const APPROVED: ToolRoute = { ...ONCE, approval: true, policy: POLICY, requesters: ['bob'] };

/** A turn that runs two calls which must not run twice: `call_0`, which a person has allowed, and `call_1`. */
function withAllowed(): PlayedRun {
  const run = begun({ pause: 'wait', onUnknown: 'ask' });
  run.answers(messageWith(APPROVED, ONCE));
  expect(run.task()).toEqual(['main call_1']);
  expect(run.task(allow('call_0'))).toEqual(['main call_0']);
  return run;
}

test('a call is asked about again by those who could approve it: if its outcome is unknown, or its connection replaced', () => {
  const run = withAllowed();
  const again = { policy: POLICY, requesters: ['bob'] };
  const { onUnknown, onReplaced } = run.toolInput('call_0');
  expect([onUnknown, onReplaced]).toEqual([again, again]);
  expect(run.toolInput('call_1').onUnknown).toEqual({});
  expect(run.toolInput('call_1')).not.toHaveProperty('onReplaced');
});

test('a call whose outcome was unknown runs again as a repetition', () => {
  const run = withAllowed();
  expect(run.toolInput('call_0')).not.toHaveProperty('repeats');
  run.loses('call_0');
  expect(run.task()).toEqual([]);
  expect(run.task(allow('call_0'))).toEqual(['main call_0']);
  expect(run.toolInput('call_0').repeats).toBe(true);
});

test('a turn with a message repeats no sign-in for any of the calls that it resumes, but those for calls of its own', () => {
  const run = new PlayedRun({ pause: 'wait', resumes: { pending: [left('a'), left('b')] } });
  expect(run.task()).toEqual(['main a', 'main b']);
  for (const id of ['a', 'b']) {
    expect(run.toolInput(id).signIn).toEqual({ id: `sig_${id}`, mayRepeat: false });
    run.returns(id);
  }
  run.task();
  callsTool(run);
  run.needsSignIn('call_0');
  run.task();
  expect(run.task(SIGNED_IN)).toEqual(['main call_0']);
  expect(run.toolInput('call_0').signIn).toEqual({ id: 'sig_1', mayRepeat: true });
});

test('code that resumes without a pause has no waiting time of its turn', () => {
  const run = begun();
  run.answers(messageWith(CELL));
  run.task();
  run.opens('host');
  run.task();
  const source = { ...POSITION, run: CELL };
  const code: SubAgent = { ...AGENT, threadId: 'code_1', depth: 0, iterations: 0, hasServers: false, code: { source } };
  const asked = { ...modelMessage({ threadId: 'code_1' }), fromCode: true as const };
  run.ends('main call_0', { how: 'completed', stamp: 's', records: [created(code), asked] });
  expect(run.task()).toEqual(['code_1 code']);
  expect(run.codeInput('code_1')).not.toHaveProperty('waitedMs');
});

test('neither a thread without a cell resumes as code, nor does a call run that a sub-agent answers', () => {
  const run = begun();
  delegates(run);
  const turn = { start: turnStart(), log: run.log };
  const call = run.log.thread('main').calls.get('call_0')!;
  expect(() => activityOf({ name: 'resumeCell', threadId: 'main' }, turn, NEXT)).toThrow("main is no cell's");
  expect(() => activityOf({ name: 'callTool', call }, turn, NEXT)).toThrow('is answered by another thread');
});
