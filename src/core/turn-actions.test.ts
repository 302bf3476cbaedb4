import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { askedCalls } from '../../test/support/asked-calls.ts';
import { continuation, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { HistoryEvent, ScheduledActivity } from './history.ts';
import { Turn } from './turn.ts';
import { endOfThread } from './sub-agents.ts';
import { isoTime } from './text.ts';
import { heldCall, onReplacedOf, waitingAfter } from './tool-records.ts';
import type { WithoutId } from './records/base.ts';
import type { ApprovalPolicy, ToolCall } from './records/calls.ts';
import type { LogEntry } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import type { AuthRequired } from './records/servers.ts';
import { MAX_ASKING } from './questions.ts';
import { TurnActions } from './turn-actions.ts';
import type { Answer, AnswerCommand, PauseCommand, TurnCommand, CommandEvent } from './turn-command.ts';
import type { SignInCommand } from './awaited-sign-ins.ts';
import { allowedCalls, statesOf } from '../../test/support/tracked-calls.ts';

const BEGIN = Date.parse('2026-11-21T08:00:00.000Z');
const start = turnStart({ pause: 'wait' });
/** It waits for answers for at most 10 s. */
const limited = turnStart({ pause: 'wait', limits: { ...start.limits, actionSeconds: 10 } });

const policyOf = (overrides: Partial<ApprovalPolicy> = {}): ApprovalPolicy => ({
  quorum: 1,
  onExpiry: 'deny',
  ...overrides,
});

function callOf(id: string, route: ToolCall['route']): ToolCall {
  return { id, name: id, arguments: '{}', info: { type: 'mcp', serverId: 's', serverName: 's', name: id }, route };
}

const asking = (id: string, policy?: ApprovalPolicy): ToolCall =>
  callOf(id, { to: 'server', effect: 'once', approval: true, callHash: id, ...(policy && { policy }) });
const running = (id: string): ToolCall => callOf(id, { to: 'server', effect: 'once', approval: false, callHash: id });
const client = (id: string): ToolCall => callOf(id, { to: 'client' });

function messageOf(toolCalls: ToolCall[], threadId = 'main'): ModelMessage {
  const at = isoTime(BEGIN);
  const id = `msg_${threadId}`;
  const texts = { content: '', refusal: '', reasoning: '' };
  return { kind: 'model.message', id, at, threadId, ...texts, toolCalls, finishReason: 'tool_calls' };
}

/** The state that a run passes on when the log has `ordinal` records. */
/** A sub-agent of the call `sub`. */
const THREAD = {
  threadId: 't1',
  title: 't',
  parent: { threadId: 'main', toolCallId: 'sub' },
  depth: 1,
  specHash: 'a',
  hasServers: false,
  iterations: 5,
};

const remember = (answer: ReturnType<typeof vote>): Answer => ({ ...answer, remembers: true });

let commands = 0;
function command(who: string, ...answers: Answer[]): AnswerCommand {
  return {
    type: 'answer',
    id: `req_${commands++}`,
    subject: { subjectId: who, subjectType: 'user', subjectSlug: who },
    roles: ['user'],
    mayDecide: true,
    mayRespond: true,
    answers,
  };
}

const vote = (toolCallId: string, status: 'allow' | 'deny' = 'allow', threadId = 'main') => ({
  type: 'user.tool_approval' as const,
  threadId,
  toolCallId,
  approval: { status },
});
const edit = (toolCallId: string, hash: string): Answer => ({
  type: 'user.tool_approval',
  threadId: 'main',
  toolCallId,
  approval: { status: 'allow', edited: { arguments: `{"to":"${hash}"}`, hash } },
});
const respond = (toolCallId: string, content: string): Answer => ({
  type: 'user.tool_response',
  threadId: 'main',
  toolCallId,
  content,
});

/** A call, or without one the model of a thread, needs a sign-in. */
function requiring(signInId: string, threadId = 'main', toolCallId?: string): WithoutId<AuthRequired> {
  const source = { turnId: TURN_ID, messageId: 'msg_main', stamp: 's', index: 0 };
  const calls = toolCallId === undefined ? [] : [{ threadId, toolCallId, needs: 'sign_in' as const, source, signInId }];
  const servers = [{ id: signInId, name: signInId, signInId, authUrl: 'https://x/' }];
  return { kind: 'mcp.auth_required', at: isoTime(BEGIN), threadId, servers, calls };
}

const signedIn = (signInId: string): SignInCommand => ({
  type: 'sign_in',
  id: `sign-in ${signInId}`,
  signInId,
  by: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
});

function waitingOn(...calls: ToolCall[]): TurnActions {
  const actions = new TurnActions(start);
  actions.add(messageOf(calls), 's');
  actions.endTask([], BEGIN);
  return actions;
}

const hold = (type: PauseCommand['type'], who = 'ann'): PauseCommand => {
  const { id, subject } = command(who);
  return { type, id, subject };
};

/** The records of the end of a task, in short. */
function endTask(actions: TurnActions, given: TurnCommand[], after = 0): string[] {
  return actions.endTask(given, BEGIN + after).records.map((record) => {
    if (record.kind === 'tool.decided') {
      return `${record.toolCallId} ${record.decision} ${record.by?.subjectSlug ?? 'time'} ${record.remaining}`;
    }
    return record.kind === 'tool.response' ? `${record.toolCallId} ${record.outcome}` : record.kind;
  });
}

test('a command is accepted with all of its answers, or refused with its first wrong one', () => {
  const actions = waitingOn(asking('a'), client('b'), running('c'));
  const refused: [AnswerCommand, string, string | undefined][] = [
    [command('ann', vote('x')), 'call_not_pending', 'input.0'],
    [command('ann', vote('a'), vote('a')), 'call_answered_twice', 'input.1'],
    [command('ann', vote('a'), vote('b')), 'call_not_pending', 'input.1'],
    [command('ann', vote('c')), 'call_not_pending', 'input.0'],
    [{ ...command('ann', vote('a')), mayDecide: false }, 'not_an_approver', 'input.0'],
    [{ ...command('ann', respond('b', 'yes')), mayRespond: false }, 'not_an_approver', 'input.0'],
  ];
  for (const [one, code, param] of refused) {
    expect(actions.refuse(one)).toMatchObject({ code, param });
    expect(actions.endTask([one], BEGIN).verdicts.get(one.id)).toMatchObject({ code });
    expect(endTask(actions, [one])).toEqual([]);
  }
  expect(endTask(actions, [command('ann', vote('a'), respond('b', 'yes'))])).toEqual(['a allow ann 0', 'b succeeded']);
  // A repetition changes nothing, another answer is refused.
  const again = command('ann', vote('a'), respond('b', 'yes'));
  expect(actions.refuse(again)).toBeUndefined();
  expect(endTask(actions, [again])).toEqual([]);
  for (const other of [vote('a', 'deny'), respond('b', 'no')]) {
    expect(actions.refuse(command('ann', other))).toMatchObject({ code: 'already_decided' });
    expect(actions.refuse(command('bob', other))).toMatchObject({ code: 'already_decided' });
  }
});

test('the first of two contrary votes at the same time counts', () => {
  const actions = waitingOn(asking('a'));
  const [ann, bob] = [command('ann', vote('a', 'deny')), command('bob', vote('a'))];
  const { records, verdicts } = actions.endTask([ann, bob], BEGIN);
  expect(records).toMatchObject([{ decision: 'deny' }, { outcome: 'denied' }, { kind: 'turn.resumed' }]);
  expect(verdicts.get(ann.id)).toBeUndefined();
  expect(verdicts.get(bob.id)).toMatchObject({ code: 'already_decided' });
});

test('the second of two equal votes of one subject is a repetition, also in the same task', () => {
  const actions = waitingOn(asking('a', policyOf({ quorum: 2 })), asking('b', policyOf({ quorum: 2 })));
  const [first, second] = [command('ann', vote('a')), command('ann', vote('a'), vote('b'))];
  const { records, repeated } = actions.endTask([first, second], BEGIN);
  expect(records).toMatchObject([
    { toolCallId: 'a', remaining: 1 },
    { toolCallId: 'b', remaining: 1 },
  ]);
  expect(repeated.get(first.id)).toEqual([]);
  expect(repeated.get(second.id)).toMatchObject([{ toolCallId: 'a' }]);
});

test('a quorum needs distinct subjects, and one denial decides', () => {
  const actions = waitingOn(asking('a', policyOf({ quorum: 2 })), asking('b', policyOf({ quorum: 2 })));
  expect(endTask(actions, [command('ann', vote('a'), vote('b'))])).toEqual(['a allow ann 1', 'b allow ann 1']);
  expect(endTask(actions, [command('ann', vote('a'))])).toEqual([]);
  expect(allowedCalls(actions)).toEqual([]);
  expect(endTask(actions, [command('bob', vote('a'), vote('b', 'deny'))])).toEqual([
    'a allow bob 0',
    'b deny bob 0',
    'b denied',
    'turn.resumed',
  ]);
  expect(allowedCalls(actions)).toMatchObject([{ toolCallId: 'a' }]);
});

test('a call runs with the edited arguments that were allowed; a repeated edit changes nothing', () => {
  const actions = waitingOn(asking('a'), asking('b', policyOf({ mayEditArguments: false })));
  expect(actions.refuse(command('ann', edit('b', 'x')))).toMatchObject({ code: 'edit_not_allowed', param: 'input.0' });
  const { records } = actions.endTask([command('ann', edit('a', 'x'))], BEGIN);
  expect(records).toMatchObject([{ decision: 'allow', edited: { hash: 'x' }, remaining: 0 }, { kind: 'turn.resumed' }]);
  expect(allowedCalls(actions)).toMatchObject([{ toolCallId: 'a', edited: { hash: 'x' } }]);
  expect([actions.refuse(command('ann', edit('a', 'x'))), endTask(actions, [command('ann', edit('a', 'x'))])]).toEqual([
    undefined,
    [],
  ]);
  for (const other of [vote('a'), edit('a', 'y'), vote('a', 'deny')]) {
    expect(actions.refuse(command('ann', other))).toMatchObject({ code: 'already_decided' });
  }
});

test('votes for different arguments do not add up: an edit voids the votes before it', () => {
  const actions = waitingOn(asking('a', policyOf({ quorum: 2 })));
  expect(endTask(actions, [command('ann', vote('a'))])).toEqual(['a allow ann 1']);
  expect(endTask(actions, [command('bob', edit('a', 'x'))])).toEqual(['a allow bob 1']);
  expect(actions.refuse(command('bob', edit('a', 'y')))).toMatchObject({ code: 'already_decided' });
  // The response to the first request may have been lost, so its repetition must not void bob's edit.
  expect(endTask(actions, [command('ann', vote('a'))])).toEqual([]);
  expect(endTask(actions, [command('ann', edit('a', 'x'))])).toEqual(['a allow ann 0', 'turn.resumed']);
  expect(allowedCalls(actions)).toMatchObject([{ edited: { hash: 'x' } }]);
});

test('a subject whose vote was voided may deny', () => {
  const actions = waitingOn(asking('a', policyOf({ quorum: 2 })));
  endTask(actions, [command('ann', edit('a', 'x')), command('bob', vote('a'))]);
  expect(endTask(actions, [command('ann', vote('a', 'deny'))])).toEqual(['a deny ann 0', 'a denied', 'turn.resumed']);
});

test('a call whose outcome is unknown is answered by what happened, or runs again by the votes that it took', () => {
  const policy = policyOf({ quorum: 2, expiresInSeconds: 10, onExpiry: 'allow' });
  const actions = waitingOn(asking('a', policy), asking('b'));
  endTask(actions, [command('ann', vote('a'), vote('b')), command('bob', vote('a'))]);
  for (const { source, toolCallId, policy: its } of allowedCalls(actions)) {
    const call = { threadId: 'main', toolCallId, source, onUnknown: its ? { policy: its } : {} };
    const waiting = waitingAfter(call, 'lost');
    actions.ask(waiting!);
  }
  expect(endTask(actions, [])).toEqual(['tool.response_required', 'turn.paused']);
  expect(actions.nextDue).toBeUndefined();
  const decides = { ...command('eve', vote('a')), mayRespond: false };
  expect(actions.refuse({ ...decides, answers: [respond('a', 'done')] })).toMatchObject({ code: 'not_an_approver' });
  expect(actions.refuse({ ...decides, mayDecide: false })).toMatchObject({ code: 'not_an_approver' });
  expect(actions.refuse(command('ann', edit('a', 'x')))).toMatchObject({ code: 'edit_not_allowed' });
  expect(endTask(actions, [decides, command('ann', respond('b', 'It was paid.'))])).toEqual([
    'a allow eve 1',
    'b succeeded',
  ]);
  expect(endTask(actions, [command('ann', vote('a'))])).toEqual(['a allow ann 0', 'turn.resumed']);
  expect(allowedCalls(actions)).toMatchObject([{ toolCallId: 'a', unknownOutcome: expect.any(String) }]);
});

test('an answer to the question of a server is neither an approval nor a denial', () => {
  const actions = waitingOn(running('a'));
  const source = { turnId: TURN_ID, messageId: 'msg_main', stamp: 's', index: 0 };
  const elicitation = { question: '{}', state: { blob: 'b' } };
  const waiting = waitingAfter({ threadId: 'main', toolCallId: 'a', source }, { elicitation });
  actions.ask(waiting!);
  endTask(actions, []);
  expect(endTask(actions, [command('ann', respond('a', '{"action":"decline"}'))])).toEqual([
    'a respond ann 0',
    'turn.resumed',
  ]);
});

test('a policy names who may decide, and whom an escalation adds', () => {
  const [bobs, admins] = [
    { subjects: ['bob'], roles: [] },
    { subjects: [], roles: ['admin' as const] },
  ];
  const escalate = { afterSeconds: 60, to: admins };
  const actions = waitingOn(asking('a', policyOf({ approvers: bobs, escalate })));
  const admin = (): AnswerCommand => ({ ...command('eve', vote('a')), roles: ['admin'] });
  expect(actions.refuse(command('ann', vote('a')))).toMatchObject({ code: 'not_an_approver' });
  expect(actions.refuse(admin())).toMatchObject({ code: 'not_an_approver' });
  expect(actions.refuse({ ...command('bob', vote('a')), mayDecide: false })).toBeUndefined();
  expect(actions.nextDue).toBe(BEGIN + 60_000);
  expect(endTask(actions, [], 60_000)).toEqual(['a escalated time 1']);
  expect([endTask(actions, [], 90_000), actions.nextDue]).toEqual([[], undefined]);
  expect(actions.refuse(command('ann', vote('a')))).toMatchObject({ code: 'not_an_approver' });
  expect(endTask(actions, [admin()], 90_000)).toEqual(['a allow eve 0', 'turn.resumed']);
});

test.each([
  ['deny', ['a expired time 0', 'a expired', 'turn.resumed'], undefined],
  ['allow', ['a expired time 0', 'turn.resumed'], undefined],
  ['end', ['a expired time 0', 'a expired', 'turn.resumed'], /expired/],
] as const)('an approval expires, and then the default %s applies', (onExpiry, expected, failure) => {
  const actions = waitingOn(asking('a', policyOf({ expiresInSeconds: 10, onExpiry })));
  expect([actions.isUnsettled(BEGIN + 9_999), actions.isUnsettled(BEGIN + 10_000)]).toEqual([false, true]);
  // A vote in the task in which it expires still counts: commands come before time.
  expect(endTask(actions, [], 10_000)).toEqual(expected);
  expect(allowedCalls(actions).length).toBe(onExpiry === 'allow' ? 1 : 0);
  if (failure) expect(actions.failure?.message).toMatch(failure);
  else expect(actions.failure).toBeUndefined();
  expect(actions.refuse(command('ann', vote('a')))).toMatchObject({ code: 'already_decided' });
});

test('an approval that has expired by the time of its escalation is not escalated', () => {
  const escalate = { afterSeconds: 10, to: { subjects: ['bob'], roles: [] } };
  const policy = (expiresInSeconds: number) => policyOf({ escalate, expiresInSeconds });
  const actions = waitingOn(asking('a', policy(10)), asking('b', policy(11)));
  expect(endTask(actions, [], 60_000)).toEqual([
    'a expired time 0',
    'a expired',
    'b escalated time 1',
    'b expired time 0',
    'b expired',
    'turn.resumed',
  ]);
});

test('a turn that waits too long for answers fails; each pause has the whole time', () => {
  const waiting = new TurnActions(limited);
  waiting.add(messageOf([client('a'), client('b')]), 's');
  expect(endTask(waiting, [])).toEqual(['tool.response_required', 'turn.paused']);
  expect(waiting.nextDue).toBe(BEGIN + 10_000);
  endTask(waiting, [command('ann', respond('a', 'x'))], 5_000);
  expect(waiting.nextDue).toBe(BEGIN + 10_000);
  const next = new TurnActions({ ...limited, carry: continuation(waiting.state) });
  expect([next.nextDue, next.isUnsettled(BEGIN + 10_000)]).toEqual([BEGIN + 10_000, true]);
  expect([endTask(next, [], 10_000), next.failure?.code]).toEqual([[], 'action_expired']);
  expect([next.isUnsettled(BEGIN + 20_000), next.nextDue]).toEqual([false, undefined]);
  // An answer in the task in which the time is up still counts.
  expect(endTask(waiting, [command('ann', respond('b', 'y'))], 10_000)).toEqual(['b succeeded', 'turn.resumed']);
  expect([waiting.failure, waiting.nextDue]).toEqual([undefined, undefined]);
  waiting.add(messageOf([client('c')]), 't');
  endTask(waiting, [], 30_000);
  expect(waiting.nextDue).toBe(BEGIN + 40_000);
});

test('a result is repeated if all of it is the same; a turn may fail by a call that has none', () => {
  const actions = new TurnActions({ ...start, failsWithTools: true });
  actions.add(messageOf([client('a'), client('b')]), 's');
  endTask(actions, []);
  const given = (more: object): AnswerCommand => command('ann', { ...respond('a', 'x'), ...more });
  expect(endTask(actions, [given({ isError: true, hash: '1' })])).toEqual(['a failed']);
  expect(actions.refuse(given({ isError: true, hash: '1' }))).toBeUndefined();
  expect(actions.refuse(given({ hash: '2' }))).toMatchObject({ code: 'already_decided' });
  expect(actions.hasFailed).toBe(false);
  const thrown = { ...respond('b', 'It threw.'), error: 'secret' };
  const { records } = actions.endTask([command('ann', thrown)], BEGIN);
  expect(records[0]).toMatchObject({ outcome: 'failed', noResult: 'client', content: 'It threw.', error: 'secret' });
  expect(actions.hasFailed).toBe(true);
});

test('a remembered decision applies to calls of the same tool by the same policy, in all threads and runs', () => {
  // Equal except for their `match`, which only the id shows.
  const [small, large] = [policyOf({ id: 'small' }), policyOf({ id: 'large' })];
  const named = (id: string, call: ToolCall): ToolCall => ({ ...call, id });
  const of = (serverId: string, call: ToolCall): ToolCall => ({ ...call, info: { ...call.info, serverId } as never });
  const actions = waitingOn(asking('a'), asking('b', small));
  endTask(actions, [command('ann', remember(vote('a')), remember(vote('b', 'deny')))]);
  for (const one of [actions, new TurnActions({ ...start, carry: continuation(actions.state) })]) {
    const decided = [named('a2', asking('a')), named('b2', asking('b', small))];
    const asked = [
      named('of another policy', asking('b', large)),
      named('of a policy', asking('a', small)),
      named('of none', asking('b')),
      named('of another server', of('other', asking('a'))),
      asking('another tool'),
    ];
    one.add({ kind: 'thread.created', at: isoTime(BEGIN), thread: THREAD, input: 'do' }, 's');
    one.add(messageOf([...decided, ...asked], 't1'), 's');
    expect(endTask(one, [])).toEqual(['a2 allow ann 0', 'b2 deny ann 0', 'b2 denied', 'tool.approval_required']);
    expect(allowedCalls(one, 't1').map(({ toolCallId }) => toolCallId)).toEqual(['a2']);
    expect(one.questions.waiting.map(({ toolCallId }) => toolCallId)).toEqual(asked.map(({ id }) => id));
  }
});

test.each<[string, Partial<ApprovalPolicy>]>([
  ['a quorum', { id: 'p', quorum: 2 }],
  ['approvers', { id: 'p', approvers: { subjects: [], roles: ['user'] } }],
  ['exclude_requester', { id: 'p', excludeRequester: true }],
])('no decision is remembered where a policy has %s: it says who decides each call', (_, policy) => {
  const actions = waitingOn(asking('a', policyOf(policy)));
  expect(actions.refuse(command('ann', remember(vote('a'))))).toMatchObject({ code: 'remember_not_allowed' });
  expect(actions.refuse(command('ann', vote('a')))).toBeUndefined();
});

test('the time for which a turn is paused is counted, and a turn is paused only if no thread does anything', () => {
  const actions = new TurnActions(start);
  actions.add(messageOf([asking('a'), running('b'), callOf('sub', { to: 'thread', threadId: 't1' })]), 's');
  actions.add({ kind: 'thread.created', at: isoTime(BEGIN), thread: THREAD, input: 'do' }, 's');
  expect(endTask(actions, [])).toEqual(['tool.approval_required']);
  actions.ended({ threadId: 'main', toolCallId: 'b' });
  expect([endTask(actions, []), actions.isPaused]).toEqual([[], false]);
  actions.add(messageOf([asking('c')], 't1'), 's');
  expect(endTask(actions, [], 1_000)).toEqual(['tool.approval_required', 'turn.paused']);
  expect(endTask(actions, [command('ann', vote('c', 'deny', 't1'))], 5_000)).toEqual([
    'c deny ann 0',
    'c denied',
    'turn.resumed',
  ]);
  expect([actions.isPaused, actions.pauses.waitedMs]).toEqual([false, 4_000]);
  const failed = { at: isoTime(BEGIN), end: { status: 'error' as const, message: 'lost' }, answer: 'It failed.' };
  for (const record of endOfThread(THREAD, failed)) actions.add(record);
  expect([endTask(actions, [], 6_000), actions.isPaused]).toEqual([['turn.paused'], true]);
});

test('a turn that does not wait takes no commands', () => {
  const actions = new TurnActions(turnStart());
  actions.add(messageOf([asking('a')]), 's');
  expect(actions.isUnsettled(BEGIN)).toBe(false);
  expect(actions.refuse(command('ann', vote('a')))).toMatchObject({ code: 'nothing_pending' });
});

test('a pause stops any turn until it is resumed, once, and is counted as time that it waited', () => {
  const actions = new TurnActions(turnStart());
  expect(actions.isRepetition(hold('resume'))).toBe(true);
  expect(actions.endTask([hold('pause'), hold('pause', 'bob')], BEGIN).records).toMatchObject([
    { kind: 'turn.paused', reason: 'requested', by: { subjectId: 'ann' } },
  ]);
  expect([actions.isHeld, actions.isPaused, actions.isRepetition(hold('pause'))]).toEqual([true, true, true]);
  const next = new TurnActions(turnStart({ carry: continuation(actions.state) }));
  expect(next.isHeld).toBe(true);
  expect(next.endTask([hold('resume', 'bob')], BEGIN + 3_000).records).toMatchObject([
    { kind: 'turn.resumed', reason: 'requested', by: { subjectId: 'bob' } },
  ]);
  expect([next.isHeld, next.isPaused, next.pauses.waitedMs]).toEqual([false, false, 3_000]);
});

test('a turn that waits for answers and a resume is paused until both have come; its time is counted once', () => {
  const actions = waitingOn(asking('a'));
  expect(endTask(actions, [hold('pause')], 1_000)).toEqual(['turn.paused']);
  expect(actions.pauses.reasons).toEqual(['action', 'requested']);
  expect(endTask(actions, [command('ann', vote('a'))], 2_000)).toEqual(['a allow ann 0', 'turn.resumed']);
  expect(actions.pauses.reasons).toEqual(['requested']);
  expect(endTask(actions, [hold('resume')], 5_000)).toEqual(['turn.resumed']);
  expect(actions.pauses.waitedMs).toBe(5_000);
});

test('a turn that is being cancelled asks for nothing, lets nothing expire and is not paused before its end', () => {
  const actions = waitingOn(running('a'), asking('b', policyOf({ expiresInSeconds: 1 })));
  expect([actions.pauses.reasons, actions.nextDue]).toEqual([[], BEGIN + 1_000]);
  const answered = { kind: 'tool.response', at: isoTime(BEGIN), threadId: 'main', toolCallId: 'a' } as const;
  // The call that was running has ended, or another thread's message has arrived: only what waits is left.
  expect(actions.endTask([{ type: 'cancelled' }], BEGIN).records).toEqual([]);
  actions.add({ ...answered, outcome: 'cancelled', content: '' });
  actions.add(messageOf([asking('c')], 'thr'), 's');
  expect([actions.isUnsettled(BEGIN + 2_000), actions.nextDue]).toEqual([false, undefined]);
  expect(actions.endTask([], BEGIN + 2_000).records).toEqual([]);
});

test('a turn waits for sign-ins, of which one may have ended before a thread has asked for it', () => {
  const actions = new TurnActions(start);
  actions.add(requiring('s1'), 's');
  expect([endTask(actions, []), actions.isModelAwaited('main')]).toEqual([['turn.paused'], true]);
  const { records } = actions.endTask([signedIn('s2'), signedIn('s1'), signedIn('s1')], BEGIN + 1_000);
  expect(records).toMatchObject([{ kind: 'turn.resumed', reason: 'sign_in', by: { subjectId: 'ann' } }]);
  expect([actions.isModelAwaited('main'), actions.pauses.waitedMs]).toEqual([false, 1_000]);
  // The result of another thread, which had begun before.
  actions.add(requiring('s1', 't1'), 's');
  actions.add(messageOf([running('a'), running('b')]), 's');
  actions.add(requiring('s2', 'main', 'a'), 's');
  actions.add(requiring('s3', 'main', 'b'), 's');
  expect(actions.isModelAwaited('t1')).toBe(false);
  expect(allowedCalls(actions).map(({ toolCallId }) => toolCallId)).toEqual(['a']);
  expect(actions.questions.waiting.map(({ toolCallId }) => toolCallId)).toEqual(['b']);
  expect(actions.refuse(command('ann', vote('b')))).toMatchObject({
    code: 'call_not_pending',
    message: expect.stringContaining('waits for a sign-in'),
  });
  const next = new TurnActions(turnStart({ pause: 'wait', carry: continuation(actions.state) }));
  expect(endTask(next, [signedIn('s3')])).toEqual([]);
  expect(allowedCalls(next).map(({ toolCallId }) => toolCallId)).toEqual(['a', 'b']);
});

test('a forced answer ends what waits and resumes what is paused, also in the next run', () => {
  const actions = waitingOn(asking('a'), asking('b'), client('c'));
  endTask(actions, [command('ann', vote('a')), hold('pause')], 1_000);
  const { id, subject } = command('bob');
  const force: TurnCommand = { type: 'force_answer', id, subject };
  expect(actions.isRepetition(force)).toBe(false);
  expect(endTask(actions, [force], 2_000)).toEqual(['b cancelled', 'c cancelled', 'turn.resumed']);
  // A call that was allowed before still runs.
  expect(allowedCalls(actions).map(({ toolCallId }) => toolCallId)).toEqual(['a']);
  expect([actions.isForced, actions.isRepetition(force)]).toEqual([true, true]);
  expect(endTask(actions, [command('ann', vote('b'))])).toEqual([]);
  expect(new TurnActions(turnStart({ carry: continuation(actions.state) })).isForced).toBe(true);
});

test('a forced answer waits for no sign-in and for no toolkit', () => {
  const actions = new TurnActions(start);
  actions.add(messageOf([]), 's');
  actions.add(requiring('s1'), 's');
  actions.add({ kind: 'toolkit.refresh_required', at: isoTime(BEGIN), messageId: 'msg_1', toolkits: ['files'] }, 's');
  expect([endTask(actions, []), actions.isModelAwaited('main')]).toEqual([['turn.paused'], true]);
  const { id, subject } = command('bob');
  expect(endTask(actions, [{ type: 'force_answer', id, subject }])).toEqual(['turn.resumed']);
  expect(actions.isModelAwaited('main')).toBe(false);
});

type CalledTool = Extract<ScheduledActivity, { name: 'callTool' }>['input'];

/** An event of a turn with three open calls. */
const happening = fc.oneof(
  fc.record({
    type: fc.constant('command' as const),
    who: fc.constantFrom('ann', 'bob'),
    calls: fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'x'), { minLength: 1, maxLength: 3 }),
    status: fc.constantFrom('allow' as const, 'deny' as const),
  }),
  fc.record({ type: fc.constant('hold' as const), command: fc.constantFrom('pause' as const, 'resume' as const) }),
  fc.record({ type: fc.constant('result' as const), needs: fc.constantFrom(undefined, 's1', 's2') }),
  fc.record({ type: fc.constant('lost' as const) }),
  fc.record({ type: fc.constant('sign_in' as const), signInId: fc.constantFrom('s1', 's2') }),
  fc.record({ type: fc.constant('task' as const), after: fc.integer({ min: 0, max: 20_000 }) }),
  fc.record({ type: fc.constant('continue' as const) }),
  fc.record({ type: fc.constant('cancel' as const) }),
);

const policies = fc.option(
  fc.record({
    quorum: fc.integer({ min: 1, max: 2 }),
    onExpiry: fc.constantFrom('deny' as const, 'allow' as const),
    expiresInSeconds: fc.integer({ min: 1, max: 60 }),
    escalate: fc.constant<ApprovalPolicy['escalate'] & {}>({ afterSeconds: 5, to: { subjects: ['bob'], roles: [] } }),
  }),
  { nil: undefined },
);

test('the workflow and the projection agree on the log, in any order of commands, results, time and runs', () => {
  fc.assert(
    fc.property(fc.array(happening, { maxLength: 25 }), policies, (happenings, policy) => {
      const log: LogEntry[] = [];
      let projection = new Turn();
      const feed = (event: HistoryEvent) => log.push(...projection.feed(event));
      const message = messageOf([asking('a', policy), asking('b', policy), asking('c')]);
      // As the workflow does: it counts results at once, and ends a task when no microtask is left.
      let actions = new TurnActions(limited);
      let count = 1;
      let queue: CommandEvent[] = [];
      let isCancelled = false;
      let eventId = 10;
      let [now, runs] = [BEGIN, 0];
      const scheduled: { id: number; input: CalledTool }[] = [];
      const [ran, lost] = [new Set<string>(), new Set<string>()];
      const at = () => isoTime(now);
      const input = { ...start, threadId: 'main', messageId: message.id, upTo: 1, step: 1, recent: [], specHash: 'a1' };
      feed({ type: 'started', at: at(), start: limited });
      feed({ type: 'scheduled', eventId: 5, at: at(), activity: { name: 'callModel', input } });
      feed({
        type: 'ended',
        scheduledEventId: 5,
        at: at(),
        end: { how: 'completed', records: [message], stamp: 's' },
      });
      actions.add(message, 's');
      count += 1;
      const endTask = (after: number): void => {
        now += after;
        feed({ type: 'taskStarted', at: at() });
        if (queue.length > 0 || actions.isUnsettled(now)) count += actions.endTask(queue, now).records.length;
        queue = [];
        feed({ type: 'taskCompleted' });
        for (const { toolCallId, source } of actions.isHeld ? [] : allowedCalls(actions)) {
          if (scheduled.some(({ input: { toolCallId: id } }) => id === toolCallId)) continue;
          ran.add(toolCallId);
          const place = { turnId: TURN_ID, sessionId: 's', threadId: 'main', specHash: 'a' };
          const called: CalledTool = { ...place, toolCallId, source, onUnknown: policy ? { policy } : {} };
          scheduled.push({ id: eventId, input: called });
          feed({ type: 'scheduled', eventId: eventId++, at: at(), activity: { name: 'callTool', input: called } });
        }
      };
      endTask(0);
      for (const one of happenings) {
        if (one.type === 'command') {
          const given = command(one.who, ...one.calls.map((id) => vote(id, one.status)));
          queue.push(given);
          feed({ type: 'commanded', command: given });
        } else if (one.type === 'lost') {
          const call = scheduled.shift();
          if (!call) continue;
          lost.add(call.input.toolCallId);
          feed({ type: 'ended', scheduledEventId: call.id, at: at(), end: { how: 'timed_out' } });
          const waiting = waitingAfter(call.input, 'lost');
          if (waiting) actions.ask(waiting);
        } else if (one.type === 'hold') {
          const given = hold(one.command);
          queue.push(given);
          feed({ type: 'commanded', command: given });
        } else if (one.type === 'result') {
          const call = scheduled.shift();
          if (!call) continue;
          const { id } = call;
          const { toolCallId } = call.input;
          const result = { kind: 'tool.response' as const, at: at(), threadId: 'main', toolCallId, content: 'ok' };
          const records = one.needs
            ? [requiring(one.needs, 'main', toolCallId)]
            : [{ ...result, outcome: 'succeeded' as const }];
          feed({ type: 'ended', scheduledEventId: id, at: at(), end: { how: 'completed', records, stamp: 't' } });
          for (const record of records) actions.add(record, 't');
          count += 1;
        } else if (one.type === 'sign_in') {
          const given = signedIn(one.signInId);
          queue.push(given);
          feed({ type: 'commanded', command: given });
        } else if (one.type === 'cancel') {
          isCancelled = true;
          queue.push({ type: 'cancelled' });
          feed({ type: 'commanded', command: { type: 'cancelled' } });
        } else if (one.type === 'task') {
          const known = log.length;
          endTask(one.after);
          const added = log.slice(known).map(({ record }) => record);
          const waits = added.some((record) => record.kind === 'turn.paused' && record.reason !== 'requested');
          if (isCancelled) expect(waits, 'a turn that is being cancelled waits for nothing').toBe(false);
        } else if (!isCancelled && scheduled.length === 0 && queue.length === 0) {
          runs += 1;
          const next = { ...limited, carry: continuation({ ...actions.state, ordinal: count }) };
          feed({ type: 'continued', at: at(), runId: 'r' });
          // Every other time by a reader that begins with the run.
          if (runs % 2 === 0) projection = new Turn();
          feed({ type: 'started', at: at(), start: next });
          actions = new TurnActions(next);
        }
      }
      expect(log.length).toBe(count);
      const resume = hold('resume');
      queue.push(resume);
      feed({ type: 'commanded', command: resume });
      endTask(0);
      if (!isCancelled) expect(actions.isHeld).toBe(false);
      const pauses = log.flatMap(({ record }) => ('reason' in record && record.reason === 'requested' ? [record] : []));
      expect(pauses.map(({ kind }) => kind)).toEqual(
        pauses.map((_, i) => (i % 2 === 0 ? 'turn.paused' : 'turn.resumed')),
      );
      feed({ type: 'closed', at: at(), close: { how: 'terminated', reason: 'abandoned' } });
      expect(log.map(({ ordinal }) => ordinal)).toEqual(log.map((_, i) => i + 1));
      const records = log.map(({ record }) => record);
      for (const id of ['a', 'b', 'c']) {
        const responses = records.filter((one) => one.kind === 'tool.response' && one.toolCallId === id);
        expect(responses.length).toBe(1);
        const decided = records.flatMap((one) => (one.kind === 'tool.decided' && one.toolCallId === id ? [one] : []));
        const votes = decided.flatMap(({ by }) => (by ? [by.subjectId] : []));
        // Whether a call whose outcome is unknown runs again is another question.
        if (!lost.has(id)) expect(new Set(votes).size).toBe(votes.length);
        const isAllowed = decided.some(
          ({ decision, remaining }) =>
            (decision === 'allow' && remaining === 0) || (decision === 'expired' && policy?.onExpiry === 'allow'),
        );
        // A turn that was held when it was cancelled is not resumed.
        if (ran.has(id) || !isCancelled) expect(ran.has(id)).toBe(isAllowed);
      }
      expect([...askedCalls(records).keys()]).toEqual([]);
    }),
    { numRuns: 500 },
  );
});

test('a sender to the turn may not decide on its calls that exclude requesters, also in the next run', () => {
  const policy = policyOf({ excludeRequester: true, quorum: 2 });
  const asked = (id: string) =>
    callOf(id, { to: 'server', effect: 'once', approval: true, callHash: id, policy, requesters: ['ann'] });
  const steer = (who: string): TurnCommand => {
    const { id, subject } = command(who);
    return { type: 'steer', id, subject, sessionId: 's', messages: ['and more'] };
  };
  const actions = new TurnActions(start);
  actions.steering.modelCalled();
  actions.endTask([steer('bob')], BEGIN);
  actions.steering.modelEnded();
  actions.add(messageOf([asked('a')]), 's');
  const { records } = actions.endTask([], BEGIN);
  expect(records.find(({ kind }) => kind === 'tool.approval_required')).toMatchObject({
    calls: [{ requesters: ['ann', 'bob'] }],
  });
  const refused = (who: string, of = actions) => of.refuse(command(who, vote('a', 'deny')))?.code;
  expect(['ann', 'bob', 'cleo', 'dan'].map((who) => refused(who))).toEqual([
    'not_an_approver',
    'not_an_approver',
    undefined,
    undefined,
  ]);
  actions.endTask([steer('cleo')], BEGIN);
  const next = new TurnActions({ ...start, carry: continuation(actions.state) });
  for (const of of [actions, next])
    expect(['cleo', 'dan'].map((who) => refused(who, of))).toEqual(['not_an_approver', undefined]);
});

test('a call that waits behind one that asks keeps no turn from its pause, in its next run too', () => {
  const inOrder = (call: ToolCall, isReadOnly?: true): ToolCall => ({
    ...call,
    route: { ...call.route, order: { server: 's', ...(isReadOnly && { isReadOnly }) } } as ToolCall['route'],
  });
  const calls = [inOrder(asking('w')), inOrder(running('r'), true)];
  const actions = new TurnActions(start);
  actions.add(messageOf(calls), 's');
  expect(endTask(actions, [])).toEqual(['tool.approval_required', 'turn.paused']);
  const next = new TurnActions({ ...start, carry: continuation(actions.state) });
  expect(next.pauses.reasons).toEqual(['action']);
  expect(next.isUnsettled(BEGIN)).toBe(false);
  expect(endTask(next, [command('ann', vote('w'))])).toEqual(['w allow ann 0', 'turn.resumed']);
  const other = waitingOn(inOrder(asking('w')), running('r'));
  expect(other.pauses.reasons).toEqual([]);
});

test('a forced answer settles the calls behind those that wait, too, and no others', () => {
  const inOrder = (call: ToolCall, server = 's'): ToolCall => ({
    ...call,
    route: { ...call.route, order: { server } } as ToolCall['route'],
  });
  const actions = new TurnActions(start);
  const calls = [running('first'), asking('w'), running('r'), asking('allowed')].map((call) => inOrder(call));
  actions.add(messageOf([...calls, inOrder(running('other'), 'o')]), 's');
  endTask(actions, []);
  endTask(actions, [command('ann', vote('allowed'))]);
  const { records } = actions.endTask([{ type: 'force_answer', id: 'req_f', subject: command('ann').subject }], BEGIN);
  const settled = records.filter(({ kind }) => kind === 'tool.response');
  expect(settled).toMatchObject(['w', 'r', 'allowed'].map((toolCallId) => ({ toolCallId, outcome: 'cancelled' })));
  expect(statesOf(actions)).toEqual({ first: 'ready', other: 'ready' });
});

test('a forced answer leaves an unknown outcome unknown; while its turn is paused, it is no repetition', () => {
  const actions = new TurnActions(start);
  actions.add(messageOf([running('a')]), 's');
  const source = { turnId: TURN_ID, messageId: 'msg_main', stamp: 's', index: 0 };
  const lost = {
    threadId: 'main',
    toolCallId: 'a',
    needs: 'response' as const,
    source,
    unknownOutcome: 'It was lost.',
  };
  actions.ask(lost);
  endTask(actions, []);
  const { id, subject } = command('ann');
  const force = { type: 'force_answer' as const, id, subject };
  expect(actions.isRepetition(force)).toBe(false);
  expect(actions.endTask([force], BEGIN).records).toMatchObject([
    { outcome: 'unknown_outcome', content: 'It was lost.' },
    { kind: 'turn.resumed' },
  ]);
  expect(actions.isRepetition(force)).toBe(true);
  endTask(actions, [hold('pause')]);
  expect(actions.isRepetition(force)).toBe(false);
});

test('a call whose connection was replaced is asked about once more: its votes begin anew, and decisions on its tool do not hold', () => {
  const actions = new TurnActions(start);
  actions.add(messageOf([asking('pay', policyOf({ quorum: 2 })), asking('look')]), 's');
  actions.endTask([], BEGIN);
  actions.endTask([command('ann', vote('pay'), remember(vote('look'))), command('bob', vote('pay'))], BEGIN);
  const allowed = allowedCalls(actions).map((call) => ({ ...call, threadId: 'main' }));
  expect(allowed.map(({ toolCallId }) => toolCallId)).toEqual(['pay', 'look']);
  const asked = allowed.map((call) => ({ ...call, again: onReplacedOf(call) }));
  for (const { again, ...call } of asked) {
    const waiting = waitingAfter({ ...call, ...(again && { onReplaced: again }) }, { isReplaced: true });
    actions.ask(waiting!);
  }
  expect(actions.endTask([], BEGIN).records).toMatchObject([
    {
      kind: 'tool.approval_required',
      calls: [
        { toolCallId: 'pay', policy: { quorum: 2 }, isAskedAgain: true },
        { toolCallId: 'look', isAskedAgain: true },
      ],
    },
    { kind: 'turn.paused' },
  ]);
  const once = command('ann', vote('pay'), remember(vote('look')));
  const { records, verdicts, repeated } = actions.endTask([once], BEGIN);
  expect([verdicts.get(once.id), repeated.get(once.id)]).toEqual([undefined, []]);
  expect(records).toMatchObject([
    { kind: 'tool.decided', toolCallId: 'pay', remaining: 1 },
    { kind: 'tool.decided', toolCallId: 'look', remaining: 0 },
    { kind: 'turn.resumed' },
  ]);
  // It is not asked about a third time.
  expect(allowedCalls(actions).map((call) => onReplacedOf(call))).toEqual([undefined]);
});

test('an answer that was sent before its call asked something else does not answer that', () => {
  const actions = waitingOn(running('a'));
  const source = { turnId: TURN_ID, messageId: 'msg_main', stamp: 's', index: 0 };
  const askFor = (question: string, after: number): void => {
    const elicitation = { question, state: { blob: 'b' } };
    const waiting = waitingAfter({ threadId: 'main', toolCallId: 'a', source }, { elicitation });
    actions.ask(waiting!);
    actions.endTask([], BEGIN + after);
  };
  const yes = (who: string, after: number, more: Partial<AnswerCommand> = {}): AnswerCommand => {
    return { ...command(who, respond('a', 'yes')), askedUntil: BEGIN + after, ...more };
  };
  askFor('One?', 0);
  expect(endTask(actions, [yes('ann', 0)])).toEqual(['a respond ann 0', 'turn.resumed']);
  askFor('Two?', 1);
  const [again, late] = [yes('ann', 0), yes('bob', 0)];
  const { records, verdicts, repeated } = actions.endTask([again, late], BEGIN + 2);
  expect([records, verdicts.get(again.id), repeated.get(again.id)]).toMatchObject([
    [],
    undefined,
    [{ toolCallId: 'a' }],
  ]);
  expect(verdicts.get(late.id)).toMatchObject({ code: 'already_decided' });
  // Only a key distinguishes an equal answer to the second question from a repetition of the first.
  expect(endTask(actions, [yes('ann', 1, { isRepetition: true })], 2)).toEqual([]);
  expect(endTask(actions, [yes('ann', 1)], 2)).toEqual(['a respond ann 0', 'turn.resumed']);
});

test('repeated answers are recognised in later messages and runs: together, in parts, of their subject alone', () => {
  const actions = waitingOn(asking('a'), client('b'), asking('c'));
  endTask(actions, [command('ann', vote('a'), respond('b', 'yes')), command('ann', vote('c', 'deny'))]);
  expect(actions.isRepetition(command('ann'))).toBe(false);
  actions.add(messageOf([asking('d')]), 't');
  actions.endTask([], BEGIN);
  const next = new TurnActions({ ...start, carry: continuation(actions.state) });
  for (const turn of [actions, next]) {
    for (const given of [[vote('c', 'deny'), respond('b', 'yes')], [vote('a')]]) {
      expect(turn.isRepetition(command('ann', ...given))).toBe(true);
      expect(turn.refuse(command('ann', ...given))).toBeUndefined();
      expect(turn.refuse(command('bob', ...given))?.code).toBe('call_not_pending');
    }
    for (const other of [[vote('a', 'deny')], [remember(vote('a'))], [vote('a'), vote('d')]]) {
      expect(turn.isRepetition(command('ann', ...other))).toBe(false);
      expect(turn.refuse(command('ann', ...other))).toBeDefined();
    }
  }
});

test('an approved call that waits behind others is still asked about once more, and only if it was approved', () => {
  const source = { turnId: TURN_ID, messageId: 'msg_1', stamp: 's', index: 1 };
  const call = { threadId: 'main', toolCallId: 'pay', source };
  const policy = policyOf({ quorum: 2 });
  const held = heldCall({ ...call, needs: 'approval' as const, policy });
  expect(held).toMatchObject({ needs: 'order' });
  // It may be held in several runs of its turn.
  expect([held, heldCall(held)].map(onReplacedOf)).toEqual([{ policy }, { policy }]);
  const unasked = [call, { ...call, needs: 'approval' as const, isAskedAgain: true as const }];
  expect(unasked.map((one) => onReplacedOf(heldCall(one)))).toEqual([undefined, undefined]);
});

test('a call that is asked about once more is not executed if the turn ends meanwhile', () => {
  const message = messageOf([asking('pay')]);
  const source = { turnId: TURN_ID, messageId: message.id, stamp: 's', index: 0 };
  const place = { turnId: TURN_ID, sessionId: 'ses_1', threadId: 'main', specHash: 'a1' };
  const edited = { arguments: '{"to":"x"}', hash: 'x' };
  const at = isoTime(BEGIN);
  const projection = new Turn();
  const modelCall = { ...start, threadId: 'main', messageId: message.id, upTo: 1, step: 1, recent: [], specHash: 'a1' };
  const run = { ...place, toolCallId: 'pay', source, edited, onReplaced: {} };
  const events: HistoryEvent[] = [
    { type: 'started', at, start },
    { type: 'scheduled', eventId: 1, at, activity: { name: 'callModel', input: modelCall } },
    { type: 'ended', scheduledEventId: 1, at, end: { how: 'completed', records: [message], stamp: 's' } },
    { type: 'scheduled', eventId: 2, at, activity: { name: 'callTool', input: run } },
    { type: 'ended', scheduledEventId: 2, at, end: { how: 'completed', records: [], stamp: 't', isReplaced: true } },
    { type: 'closed', at, close: { how: 'completed', result: { status: 'cancelled', reason: 'client-cancelled' } } },
  ];
  const records = events.flatMap((event) => projection.feed(event)).map(({ record }) => record);
  const response = records.find(({ kind }) => kind === 'tool.response');
  expect(response).toMatchObject({ toolCallId: 'pay', outcome: 'cancelled' });
  expect(response).not.toHaveProperty('arguments');
});

test.each([
  ['a sign-in of its model', (actions: TurnActions) => actions.add(requiring('s1'), 's'), []],
  ['a sign-in for a call', (actions: TurnActions) => actions.add(requiring('s1', 'main', 'a'), 's'), ['a cancelled']],
  ['an approval', (actions: TurnActions) => actions.add(messageOf([asking('a')]), 's'), ['a cancelled']],
  [
    'toolkits',
    (actions: TurnActions) =>
      actions.add({ kind: 'toolkit.refresh_required', at: isoTime(BEGIN), messageId: 'm', toolkits: ['files'] }, 's'),
    [],
  ],
])('a forced answer does not wait for what a call asks for that ran before it: %s', (_, ask, settled) => {
  const actions = new TurnActions(start);
  actions.add(messageOf([]), 's');
  const { id, subject } = command('bob');
  expect(endTask(actions, [{ type: 'force_answer', id, subject }])).toEqual([]);
  ask(actions);
  expect([endTask(actions, []), actions.isPaused, actions.isModelAwaited('main')]).toEqual([settled, false, false]);
});

test('at most 32 calls ask at once: a further one continues with the answer that its question was cancelled', () => {
  const ids = Array.from({ length: MAX_ASKING + 1 }, (_, i) => `c${i}`);
  const actions = new TurnActions(start);
  actions.add(messageOf(ids.map(running)), 's');
  const elicitation = { question: '{}', state: { blob: 'b' } };
  for (const [index, toolCallId] of ids.entries()) {
    actions.scheduled({ threadId: 'main', toolCallId });
    const source = { turnId: TURN_ID, messageId: 'msg_main', stamp: 's', index };
    const asks = waitingAfter({ threadId: 'main', toolCallId, source }, { elicitation });
    if (asks) actions.ask(asks);
  }
  actions.endTask([], BEGIN);
  expect(actions.questions.waiting.map(({ toolCallId }) => toolCallId)).toEqual(ids.slice(0, MAX_ASKING));
  expect(actions.working('main').ready).toMatchObject([
    { toolCallId: ids.at(-1), answered: { elicitation, content: expect.stringContaining('cancel') } },
  ]);
});
