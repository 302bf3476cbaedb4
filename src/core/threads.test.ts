import { expect, test } from 'vitest';
import { messageWith } from '../../test/support/model-message.ts';
import { continuation, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { ActivityResult, HistoryEvent, TurnStart } from './history.ts';
import { Turn } from './turn.ts';
import type { NewRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import type { SubAgent } from './records/threads.ts';
import { carriedThreads, countedSteps, madeCalls, newThread, threadsOf, waitingIn, type Thread } from './threads.ts';

const AT = '2026-11-28T08:00:00.000Z';
const plan = { threadId: 'main', messageId: 'msg_1', createdAt: AT, upTo: 3 };
const message: ModelMessage = {
  kind: 'model.message',
  id: 'msg_1',
  at: AT,
  threadId: 'main',
  content: 'Hello.',
  refusal: '',
  reasoning: '',
  toolCalls: [],
  finishReason: 'stop',
};

type Outcome = Extract<ActivityResult, { how: 'completed' }>['outcome'] & {};

const completed = (outcome: Outcome, ...records: NewRecord[]): ActivityResult => ({
  how: 'completed',
  stamp: 's',
  records,
  outcome,
});

/** A turn whose root agent calls its model with step 1, 2, ..., which end like this. */
function afterCalls(
  ends: (ActivityResult | undefined)[],
  overrides: Partial<TurnStart> = {},
  ofCalls: { isForced?: true } = {},
): Turn {
  const projection = new Turn();
  const start = turnStart(overrides);
  const events: HistoryEvent[] = [{ type: 'started', at: AT, start }];
  for (const [i, end] of ends.entries()) {
    const input = { ...start, ...plan, previousTurnId: null, step: i + 1, recent: [], ...ofCalls };
    events.push({ type: 'scheduled', eventId: i, at: AT, activity: { name: 'callModel', input } });
    if (end) events.push({ type: 'ended', scheduledEventId: i, at: AT, end });
  }
  for (const event of events) projection.feed(event);
  return projection;
}

test('a model call is a step, and reads the log up to its place', () => {
  expect(afterCalls([undefined]).thread('main')).toEqual(newThread({ steps: 1, read: 3 }));
  expect(afterCalls([completed({ status: 'answered' }, message), undefined]).thread('main').steps).toBe(2);
});

test.each(['compacted', 'budget_reached'] as const)('a call that was %s is no step, and is planned again', (status) => {
  const { messageId, createdAt } = plan;
  const thread = afterCalls([completed({ status })]).thread('main');
  expect(thread).toEqual(newThread({ planned: { messageId, createdAt }, read: 3 }));
  expect(afterCalls([completed({ status }), undefined]).thread('main').planned).toBeUndefined();
});

test('a step that finds a sign-in missing is counted', () => {
  expect(afterCalls([completed({ status: 'sign_in_required' })]).thread('main')).toMatchObject({
    steps: 1,
    refused: 1,
  });
});

test('the message that the client has given is a step without a call', () => {
  const given = { ...message, isGiven: true as const };
  expect(afterCalls([completed({ status: 'answered' }, given)]).thread('main').isGiven).toBe(true);
  expect(afterCalls([completed({ status: 'answered' }, message)]).thread('main').isGiven).toBe(false);
});

const source = {
  turnId: TURN_ID,
  messageId: 'msg_1',
  stamp: 's',
  index: 0,
  run: { effect: 'retry' as const, callHash: 'h' },
};
const response = (noResult?: 'unreachable') => ({
  kind: 'tool.response' as const,
  at: AT,
  threadId: 'main',
  toolCallId: 'a',
  outcome: 'failed' as const,
  content: '',
  ...(noResult && { noResult }),
});

test.each<[string, ActivityResult, boolean]>([
  ['has failed', completed({ status: 'answered' }, response()), false],
  ['has no result of its tool', completed({ status: 'answered' }, response('unreachable')), true],
  ['was lost', { how: 'timed_out' }, true],
  ['was cancelled', { how: 'cancelled', started: true }, false],
])('whether a turn fails by a call that %s', (_, end, fails) => {
  const call = { id: 'a', name: 'a', arguments: '{}', info: { type: 'system' as const, name: 'a' } };
  const called = {
    ...message,
    toolCalls: [
      { ...call, route: { to: 'server' as const, effect: 'retry' as const, approval: false, callHash: 'h' } },
    ],
  };
  const projection = afterCalls([completed({ status: 'answered' }, called)], { failsWithTools: true });
  const input = { turnId: TURN_ID, sessionId: 's', threadId: 'main', specHash: 'a', toolCallId: 'a', source };
  projection.feed({ type: 'scheduled', eventId: 9, at: AT, activity: { name: 'callTool', input } });
  projection.feed({ type: 'ended', scheduledEventId: 9, at: AT, end });
  expect(projection.actions?.hasFailed).toBe(fails);
});

const AGENT: SubAgent = {
  threadId: 'thr_1',
  title: 't',
  parent: { threadId: 'main', toolCallId: 'a' },
  depth: 1,
  specHash: 'a',
  hasServers: false,
  iterations: 5,
};

test('a run that continues a turn has the same facts of each thread as the one before', () => {
  const planned = { messageId: 'msg_1', createdAt: AT };
  const call = { threadId: 'thr_1', toolCallId: 'b', state: 'ready' as const, votes: [] };
  const root = { steps: 7, isGiven: true as const, refused: 1, read: 6, planned };
  const sub = { agent: AGENT, steps: 4, refused: 2, isConnected: true as const, calls: [call] };
  const carry = continuation({ threads: [root, sub] });
  const projection = new Turn();
  projection.feed({ type: 'started', at: AT, start: turnStart({ carry }) });
  expect(projection.thread('main')).toEqual(newThread(root));
  expect(projection.thread('thr_1')).toEqual(newThread(sub));
  expect(projection.open?.threads).toEqual(carry.threads);
});

test('a sub-agent begins with what its parent has read', () => {
  const created: NewRecord = { kind: 'thread.created', at: AT, thread: AGENT, input: 'do' };
  const projection = afterCalls([completed({ status: 'answered' }, message, created)]);
  expect(projection.thread('thr_1')).toEqual(newThread({ read: 3, agent: AGENT }));
});

test('neither a step that finds a sign-in missing counts against the limit of a thread, nor the message of its client', () => {
  expect(countedSteps(newThread({ steps: 7, refused: 2 }))).toBe(5);
  expect(countedSteps(newThread({ steps: 7, refused: 2, isGiven: true }))).toBe(4);
});

const asking = (toolCallId: string, threadId = 'main') => ({
  threadId,
  toolCallId,
  state: 'waiting' as const,
  needs: 'approval' as const,
  source,
  votes: [],
});

test('what a turn leaves to the next one has the facts of its sub-agents, which that one continues', () => {
  const sub = { agent: AGENT, steps: 4, calls: [asking('b', 'thr_1')] };
  const root = newThread({ steps: 1 });
  const left = (fields: object) =>
    waitingIn(
      new Map([
        ['main', root],
        ['thr_1', newThread({ ...sub, ...fields })],
      ]),
    );
  expect(left({}).threads).toStrictEqual([{ ...AGENT, steps: 4 }]);
  const resumes = left({ refused: 2, isDenied: true });
  expect(resumes.threads).toStrictEqual([{ ...AGENT, steps: 4, refused: 2, isDenied: true }]);
  const answer = { threadId: 'thr_1', toolCallId: 'b', approval: { status: 'allow' as const } };
  const next = threadsOf(turnStart({ resumes, input: [{ type: 'user.tool_approval', ...answer }] }));
  expect([...next.keys()]).toEqual(['main', 'thr_1']);
  expect(next.get('thr_1')).toMatchObject({ agent: AGENT, steps: 4, refused: 2, isDenied: true });
  expect(next.get('thr_1')?.calls.get('b')).toMatchObject({ state: 'ready' });
  expect(next.get('main')?.calls.get('a')).toMatchObject({ state: 'delegated' });
});

test('a run carries what differs from the beginning of a thread', () => {
  const carried = (thread: Partial<Thread>, waits = false) =>
    carriedThreads(new Map([['main', { ...newThread({ steps: 1 }), ...thread }]]), waits)[0];
  expect(carried({})).toStrictEqual({ steps: 1 });
  const end = { status: 'stopped' as const };
  expect(carried({ end, isDenied: true })).toStrictEqual({ steps: 1, end, isDenied: true });
  const code = { ...AGENT, code: { source } };
  expect(carried({ agent: code, waitedMs: 5 })).toStrictEqual({ agent: code, steps: 1, waitedMs: 5 });
  expect(carried({ agent: code })).toStrictEqual({ agent: code, steps: 1 });
  expect(carried({ agent: AGENT, waitedMs: 5 })).toStrictEqual({ agent: AGENT, steps: 1 });
  const calls = new Map([['a', { ...asking('a'), state: 'settled' as const }]]);
  expect([carried({ calls }), carried({ calls }, true)?.calls?.length]).toStrictEqual([{ steps: 1 }, 1]);
});

test('a forced message ends a thread even if it calls tools, and another one with calls does not', () => {
  const end = completed({ status: 'answered' }, messageWith({ to: 'answered' }));
  const endOf = (input: { isForced?: true }) => afterCalls([end], {}, input).thread('main').end;
  expect([endOf({}), endOf({ isForced: true })]).toEqual([undefined, { status: 'done' }]);
});

test('only a call that a host has begun is known to have begun', () => {
  const server = { to: 'server' as const, effect: 'once' as const, approval: false, callHash: 'h' };
  const called = messageWith(server, { ...server, hasBegun: true });
  const made = madeCalls(called, { turnId: TURN_ID, stamp: 's', waits: true });
  expect(made.map((call) => ['hasBegun' in call, 'rule' in call, call.state])).toEqual([
    [false, false, 'ready'],
    [true, false, 'ready'],
  ]);
});
