import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { randomThreads } from '../../test/support/random-threads.ts';
import { randomWaiting } from '../../test/support/random-waiting.ts';
import { continuation, randomTurn, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import { TurnLogReader } from '../engine/turn-log-reader.ts';
import { askedCall, type Call } from './call.ts';
import { TURN_RULES, type ActivityResult, type HistoryEvent, type TurnResult } from './history.ts';
import { refuseInput } from './input-rules.ts';
import { firstCallOf, Turn } from './turn.ts';
import type { ToolCall } from './records/calls.ts';
import type { LogEntry } from './records/log.ts';
import type { PendingCall } from './records/pending.ts';
import type { OpenThread } from './records/threads.ts';
import { NO_USAGE } from './records/usage.ts';
import type { CallKey } from './tool-records.ts';

const AT = '2026-11-21T08:00:00.000Z';

function project(events: HistoryEvent[]): LogEntry[] {
  const projection = new Turn();
  return events.flatMap((event) => projection.feed(event));
}

test('a log always begins with turn.created and ends with turn.done; its calls and sub-agents end once or wait', () => {
  fc.assert(
    fc.property(fc.oneof(randomTurn(), randomThreads(), randomWaiting()), (happenings) => {
      const entries = project(happenings.flatMap((one) => ('event' in one ? [one.event] : [])));
      expect(entries.map(({ ordinal }) => ordinal)).toEqual(entries.map((_, i) => i + 1));
      expect(entries[0]?.record.kind).toBe('turn.created');
      const done = entries.at(-1)?.record;
      if (done?.kind !== 'turn.done') throw new Error('no turn.done');
      expect(entries.filter(({ record }) => record.kind === 'turn.done').length).toBe(1);
      const calls = entries.flatMap(({ record }) => (record.kind === 'model.message' ? record.toolCalls : []));
      const pending =
        done.end.status === 'done'
          ? done.end.requiredActions.flatMap(({ calls }) => calls.map((c) => c.toolCallId))
          : [];
      const started = entries.flatMap(({ record }) => (record.kind === 'thread.created' ? [record.thread] : []));
      const ended = entries.flatMap(({ record }) => (record.kind === 'thread.done' ? [record.threadId] : []));
      const waiting = (done.end.status === 'done' && done.end.threads) || [];
      expect([...ended, ...waiting.map(({ threadId }) => threadId)].toSorted()).toEqual(
        started.map(({ threadId }) => threadId).toSorted(),
      );
      pending.push(...waiting.map(({ parent }) => parent.toolCallId));
      for (const { id } of calls) {
        const ends = entries.filter(({ record }) => record.kind === 'tool.response' && record.toolCallId === id);
        expect(ends.length + pending.filter((one) => one === id).length).toBe(1);
      }
      const ids = entries.map(({ record }) => record.id);
      expect(new Set(ids).size).toBe(ids.length);
    }),
  );
});

const source = {
  turnId: 'turn_0',
  messageId: 'msg_0',
  stamp: 's',
  index: 0,
  run: { effect: 'once' as const, callHash: 'h' },
};
const call = (toolCallId: string): PendingCall => ({ threadId: 'main', toolCallId, needs: 'approval', source });

const ALLOW = { status: 'allow' as const };
const DENIAL = {
  type: 'user.tool_approval' as const,
  threadId: 'main',
  toolCallId: 'a',
  approval: { status: 'deny' as const },
};

test('a denial is projected with the start: it is in the log, with its reason, before any activity', () => {
  const start = turnStart({
    resumes: { pending: [call('a'), call('b')] },
    input: [
      { type: 'user.tool_approval', threadId: 'main', toolCallId: 'a', approval: { status: 'allow' } },
      {
        type: 'user.tool_approval',
        threadId: 'main',
        toolCallId: 'b',
        approval: { status: 'deny', reason: 'too dear' },
      },
    ],
  });
  const entries = project([{ type: 'started', at: AT, start }]);
  expect(entries.map(({ record }) => record.kind)).toEqual(['turn.created', 'tool.response']);
  expect(entries[1]?.record).toMatchObject({
    toolCallId: 'b',
    outcome: 'denied',
    content: expect.stringContaining('too dear'),
  });
});

const TERMINATED = { how: 'terminated' as const, reason: 'client-cancelled' as const };

test.each([
  { hasServers: false, close: TERMINATED, reason: 'cancelled', kinds: ['model.message'] },
  { hasServers: true, close: TERMINATED, reason: 'cancelled', kinds: ['mcp.initialize', 'model.message'] },
  {
    hasServers: true,
    reason: 'error',
    kinds: ['mcp.initialize', 'model.message'],
    close: { how: 'failed' as const, message: 'a bug' },
  },
])(
  'a turn that closes before its first model call is scheduled has what its readers may have been shown: $kinds, $reason',
  ({ hasServers, close, reason, kinds }) => {
    const start = turnStart({ hasServers });
    const entries = project([
      { type: 'started', at: AT, start },
      { type: 'closed', at: AT, close },
    ]);
    expect(entries.map(({ record }) => record.kind)).toEqual(['turn.created', ...kinds, 'turn.done']);
    expect(entries.at(-2)?.record).toMatchObject({
      id: TURN_ID.replace('turn', 'msg'),
      at: start.createdAt,
      content: '',
      finishReason: reason,
    });
  },
);

test('a turn that closes between two model calls, or before the tools that it resumes, has no further message', () => {
  const later = turnStart({ hasServers: true, carry: continuation() });
  const input = [{ type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'a', approval: ALLOW }];
  for (const start of [later, turnStart({ hasServers: true, resumes: { pending: [call('a')] }, input })]) {
    const entries = project([
      { type: 'started', at: AT, start },
      { type: 'closed', at: AT, close: TERMINATED },
    ]);
    expect(entries.map(({ record }) => record.kind)).not.toContain('model.message');
  }
});

test.each([true, false])(
  'a first model call that fails leaves a message, and the record of its servers before it (with servers: %s)',
  (has) => {
    const start = turnStart({ hasServers: has });
    const plan = firstCallOf(start);
    const input = { ...start, ...plan, step: 1, recent: [] };
    const events: HistoryEvent[] = [
      { type: 'started', at: AT, start },
      { type: 'scheduled', eventId: 5, at: AT, activity: { name: 'callModel', input } },
    ];
    const failed: HistoryEvent = { type: 'ended', scheduledEventId: 5, at: AT, end: { how: 'timed_out' } };
    const closed: HistoryEvent = { type: 'closed', at: AT, close: TERMINATED };
    const count = has ? 2 : 1;
    expect(plan.upTo).toBe(1);
    // It failed, and it was running when the turn closed.
    expect(project([...events, failed])).toHaveLength(1 + count);
    expect(project([...events, failed, closed])).toHaveLength(1 + count + 1);
    expect(project([...events, closed])).toHaveLength(1 + count + 1);
  },
);

test('an approved call that never ran ends as cancelled, one that was started as unknown', () => {
  const start = turnStart({
    resumes: { pending: [call('a'), call('b')] },
    input: ['a', 'b'].map((toolCallId) => ({
      type: 'user.tool_approval',
      threadId: 'main',
      toolCallId,
      approval: { status: 'allow' },
    })),
  });
  const input = { turnId: TURN_ID, sessionId: 's', threadId: 'main', specHash: 'a', toolCallId: 'a', source };
  const entries = project([
    { type: 'started', at: AT, start },
    { type: 'scheduled', eventId: 5, at: AT, activity: { name: 'callTool', input } },
    { type: 'closed', at: AT, close: { how: 'terminated', reason: 'client-cancelled' } },
  ]);
  const outcomes = entries.flatMap(({ record }) =>
    record.kind === 'tool.response' ? [[record.toolCallId, record.outcome]] : [],
  );
  expect(outcomes).toEqual([
    ['a', 'unknown_outcome'],
    ['b', 'cancelled'],
  ]);
  expect(entries.at(-1)?.record).toMatchObject({ end: { status: 'cancelled', reason: 'client-cancelled' } });
});

test('a call that an earlier turn has run ends as unknown if its turn ends before it runs on', () => {
  const elicitation = { question: '{}', state: { blob: 'b' } };
  const begun: PendingCall[] = [
    { ...call('a'), needs: 'response', elicitation },
    { ...call('b'), needs: 'response', unknownOutcome: 'lost' },
  ];
  const input = [
    { type: 'user.tool_response' as const, threadId: 'main', toolCallId: 'a', content: '{}' },
    { type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'b', approval: ALLOW },
  ];
  const entries = project([
    { type: 'started', at: AT, start: turnStart({ resumes: { pending: begun }, input }) },
    { type: 'closed', at: AT, close: { how: 'terminated', reason: 'client-cancelled' } },
  ]);
  const outcomes = entries.flatMap(({ record }) => (record.kind === 'tool.response' ? [record.outcome] : []));
  expect(outcomes).toEqual(['unknown_outcome', 'unknown_outcome']);
});

test('the sub-agents that running model calls may start are reserved until these have ended', () => {
  const projection = new Turn();
  const start = turnStart();
  projection.started(start);
  const call = { ...start, ...firstCallOf(start), step: 1, recent: [], runId: 'r', deadline: 0 };
  for (const [id, mayStart] of [10, 10, 10, 10, 7].entries()) {
    expect(projection.startable(0)).toBe(10);
    projection.scheduled(id + 1, { name: 'callModel', input: { ...call, mayStart } });
  }
  expect(projection.startable(0)).toBe(3);
  projection.ended(5, AT, { how: 'cancelled', started: false });
  expect(projection.startable(0)).toBe(10);
});

test('a message of a thread ends only the sign-ins that its own thread has asked for', () => {
  const start = turnStart();
  const at = AT;
  const input = { ...start, ...firstCallOf(start), step: 1, recent: [], runId: 'r', deadline: 0 };
  const asksFor = (signInId: string, threadId: string) => {
    const servers = [{ id: signInId, name: signInId, signInId, authUrl: 'https://x/' }];
    return { kind: 'mcp.auth_required' as const, at, threadId, servers, calls: [] };
  };
  const texts = { content: 'x', refusal: '', reasoning: '', toolCalls: [], finishReason: 'stop' as const };
  const message = { kind: 'model.message' as const, id: 'msg_1', at, threadId: 'main', ...texts };
  const entries = project([
    { type: 'started', at, start },
    ...[[asksFor('s1', 'main'), asksFor('s2', 'thr_1')], [message]].flatMap((records, eventId): HistoryEvent[] => [
      { type: 'scheduled', eventId, at, activity: { name: 'callModel', input } },
      { type: 'ended', scheduledEventId: eventId, at, end: { how: 'completed', records, stamp: 's' } },
    ]),
    { type: 'closed', at, close: { how: 'completed', result: { status: 'done', pending: [] } } },
  ]);
  expect(entries.at(-1)?.record).toMatchObject({
    end: { output: null, requiredActions: [{ servers: [{ id: 's2' }] }] },
  });
});

test('the calls with unknown outcomes that an earlier run asks about count towards those that a turn asks about', () => {
  const mayAsk = (asked: number): boolean => {
    const pending = Array.from({ length: asked }, (_, n): PendingCall => ({
      ...call(`c${n}`),
      needs: 'response',
      unknownOutcome: 'lost',
    }));
    const carry = continuation({ threads: [{ steps: 1, calls: pending.map((one) => askedCall(one)) }] });
    const projection = new Turn();
    projection.started(turnStart({ onUnknown: 'ask', carry }));
    return projection.mayAskIfUnknown;
  };
  expect([31, 32].map(mayAsk)).toEqual([true, false]);
});

test('a call that is cancelled before it starts was not executed, unless it may be repeated', () => {
  const input = [{ type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'a', approval: ALLOW }];
  const contentOf = (effect: 'retry' | 'once'): unknown => {
    const run = { ...source, run: { effect, callHash: 'h' } };
    const called = { turnId: TURN_ID, sessionId: 's', threadId: 'main', specHash: 'a', toolCallId: 'a', source: run };
    const [, response] = project([
      { type: 'started', at: AT, start: turnStart({ resumes: { pending: [{ ...call('a'), source: run }] }, input }) },
      { type: 'scheduled', eventId: 5, at: AT, activity: { name: 'callTool', input: called } },
      { type: 'ended', scheduledEventId: 5, at: AT, end: { how: 'cancelled', started: false } },
    ]);
    expect(response?.record).toMatchObject({ kind: 'tool.response', outcome: 'cancelled' });
    return response?.record.kind === 'tool.response' && response.record.content;
  };
  expect(contentOf('once')).toMatch(/not executed/);
  expect(contentOf('retry')).not.toMatch(/not executed/);
});

test('a run that continues another continues its count, and a wrong count is an error', () => {
  const totals = { usage: { ...NO_USAGE, inputTokens: 7 }, modelCalls: 4, toolCalls: 3 };
  const next = (ordinal: number): HistoryEvent => ({
    type: 'started',
    at: AT,
    start: turnStart({ carry: continuation({ ...totals, ordinal }) }),
  });
  const first: HistoryEvent[] = [
    { type: 'started', at: AT, start: turnStart() },
    { type: 'continued', at: AT, runId: 'r2' },
  ];
  const closed: HistoryEvent = {
    type: 'closed',
    at: AT,
    close: { how: 'completed', result: { status: 'done', pending: [] } },
  };
  const whole = project([...first, next(1), closed]);
  expect(whole.map(({ ordinal }) => ordinal)).toEqual([1, 2]);
  expect(whole[1]?.record).toMatchObject({ ...totals, waitedMs: 0 });
  // Projected alone, the later run gives the same entries.
  expect(project([next(1), closed])).toEqual(whole.slice(1));
  expect(() => project([...first, next(3)])).toThrow(/counts 3/);
});

test('a call that waits for a sign-in is required at the end, and was not executed if its turn is cancelled', () => {
  const message = {
    kind: 'model.message' as const,
    id: 'msg_0',
    at: AT,
    threadId: 'main',
    content: '',
    refusal: '',
    reasoning: '',
    toolCalls: [
      {
        id: 'a',
        name: 'add',
        arguments: '{}',
        info: { type: 'system' as const, name: 'add' },
        route: { to: 'server' as const, effect: 'once' as const, approval: false, callHash: 'h' },
      },
    ],
    finishReason: 'tool_calls' as const,
  };
  const waiting: PendingCall = { ...call('a'), needs: 'sign_in', signInId: 's1' };
  const servers = [{ id: 'notes', name: 'notes', signInId: 's1', authUrl: 'https://x/' }];
  const start = turnStart({});
  const place = { turnId: TURN_ID, sessionId: 'ses_1', threadId: 'main', specHash: 'a1' };
  const events: HistoryEvent[] = [
    { type: 'started', at: AT, start },
    {
      type: 'scheduled',
      eventId: 5,
      at: AT,
      activity: { name: 'callModel', input: { ...place, ...firstCallOf(start), step: 1, recent: [] } },
    },
    { type: 'ended', scheduledEventId: 5, at: AT, end: { how: 'completed', records: [message], stamp: 's' } },
    {
      type: 'scheduled',
      eventId: 9,
      at: AT,
      activity: { name: 'callTool', input: { ...place, toolCallId: 'a', source } },
    },
    {
      type: 'ended',
      scheduledEventId: 9,
      at: AT,
      end: {
        how: 'completed',
        records: [{ kind: 'mcp.auth_required', at: AT, threadId: 'main', servers, calls: [waiting] }],
      },
    },
  ];
  const closed = (close: Extract<HistoryEvent, { type: 'closed' }>['close']): LogEntry[] =>
    project([...events, { type: 'closed', at: AT, close }]);
  const done = closed({ how: 'completed', result: { status: 'done', pending: [waiting] } });
  expect(done.map(({ record }) => record.kind)).toEqual([
    'turn.created',
    'model.message',
    'mcp.auth_required',
    'turn.done',
  ]);
  expect(done.at(-1)?.record).toMatchObject({
    end: { status: 'done', output: null, requiredActions: [{ kind: 'mcp.auth_required', calls: [waiting] }] },
  });
  const cancelled = closed(TERMINATED);
  expect(cancelled.map(({ record }) => ('outcome' in record ? record.outcome : record.kind)).slice(-2)).toEqual([
    'cancelled',
    'turn.done',
  ]);
});
const agent = (threadId: string, parent: OpenThread['parent'], depth: number): OpenThread => ({
  threadId,
  title: `the agent ${threadId}`,
  parent,
  depth,
  specHash: 'a1',
  hasServers: false,
  iterations: 10,
  steps: 1,
});
const outer = agent('thr_1', { threadId: 'main', toolCallId: 'call_outer' }, 1);
const inner = agent('thr_2', { threadId: 'thr_1', toolCallId: 'call_inner' }, 2);
const paused: PendingCall = { threadId: 'thr_2', toolCallId: 'call_1', needs: 'response', source };

const ends = (entries: LogEntry[]) =>
  entries.flatMap(({ record }) => {
    if (record.kind === 'thread.done') return [record.threadId];
    return record.kind === 'tool.response' ? [`${record.threadId} ${record.toolCallId} ${record.outcome}`] : [];
  });

/** The inner agent's open call, then the agents, the inner one first. */
const ALL_ENDS = [
  'thr_2 call_1 cancelled',
  'thr_2',
  'thr_1 call_inner cancelled',
  'thr_1',
  'main call_outer cancelled',
];

test('a turn that ends closes the sub-agents that an earlier run has left open', () => {
  const delegated = (call: CallKey): Call => ({ ...call, state: 'delegated', votes: [] });
  const threads = [
    { steps: 1, calls: [delegated(outer.parent)] },
    { agent: outer, steps: 1, calls: [delegated(inner.parent)] },
    { agent: inner, steps: 1, calls: [askedCall(paused)] },
  ];
  const start = turnStart({ carry: continuation({ ordinal: 7, threads }) });
  const close = { how: 'terminated' as const, reason: 'abandoned' as const };
  const entries = project([
    { type: 'started', at: AT, start },
    { type: 'closed', at: AT, close },
  ]);
  expect(entries.map(({ ordinal }) => ordinal)).toEqual([8, 9, 10, 11, 12, 13]);
  expect(ends(entries)).toEqual(ALL_ENDS);
});

test('a turn that resumes sub-agents closes them, unless they wait again', () => {
  const input = [{ type: 'user.tool_response' as const, threadId: 'thr_2', toolCallId: 'call_1', content: 'yes' }];
  const start = turnStart({ input, resumes: { pending: [paused], threads: [outer, inner] } });
  const close = { how: 'completed' as const, result: { status: 'error' as const, message: 'broken' } };
  const failed = project([
    { type: 'started', at: AT, start },
    { type: 'closed', at: AT, close },
  ]);
  expect(ends(failed)).toEqual(ALL_ENDS.slice(1));
  const next = { ...paused, toolCallId: 'call_2' };
  const result = { status: 'done' as const, pending: [next], threads: [outer, inner] };
  const waiting = project([
    { type: 'started', at: AT, start },
    { type: 'closed', at: AT, close: { how: 'completed', result } },
  ]);
  expect(ends(waiting)).toEqual([]);
  expect(waiting.at(-1)).toMatchObject({
    record: { end: { requiredActions: [{ threadId: 'thr_2' }], threads: [outer, inner] } },
  });
});

test.each(['failed', 'timed_out', 'cancelled'] as const)(
  'a sub-agent whose model call %s ends, with an answer for its parent',
  (how) => {
    const { threadId, parent } = inner;
    const plan = { threadId, messageId: 'msg_1', createdAt: AT, upTo: 1 };
    const input = { turnId: TURN_ID, sessionId: 'ses_1', ...plan, step: 1, recent: [] };
    const end = { failed: { how, message: 'no' }, timed_out: { how }, cancelled: { how, started: true } }[how];
    const entries = project([
      { type: 'started', at: AT, start: turnStart({ resumes: { pending: [], threads: [outer, inner] } }) },
      { type: 'scheduled', eventId: 5, at: AT, activity: { name: 'callModel', input } },
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the table has the fields of each end
      { type: 'ended', scheduledEventId: 5, at: AT, end: end as ActivityResult },
    ]);
    expect(entries).toHaveLength(4);
    expect(entries.slice(-2).map(({ record }) => record)).toMatchObject([
      { kind: 'thread.done', threadId, end: { status: 'error' } },
      { kind: 'tool.response', ...parent, outcome: how === 'cancelled' ? 'cancelled' : 'failed', fromThread: threadId },
    ]);
  },
);

test('a turn that is cancelled while it is paused has waited until its end', () => {
  const pauses = { reasons: ['action' as const], since: Date.parse(AT) - 5_000, waitedMs: 2_000 };
  const carry = continuation({ pauses });
  const ago = (ms: number) => new Date(Date.parse(AT) - ms).toISOString();
  const begun = { at: ago(17_000), queuedRunId: 'run' };
  const entries = project([
    { type: 'started', at: AT, start: turnStart({ pause: 'wait', createdAt: ago(60_000), begun, carry }) },
    { type: 'closed', at: AT, close: TERMINATED },
  ]);
  expect(entries.at(-1)?.record).toMatchObject({ kind: 'turn.done', waitedMs: 7_000, workedMs: 10_000 });
});

test('the answers in one task that are not refused are accepted', () => {
  const projection = new Turn();
  const start = turnStart({ pause: 'wait' });
  const input = { ...start, ...firstCallOf(start), step: 1, recent: [] };
  const message = { kind: 'model.message' as const, id: input.messageId, at: AT, threadId: 'main' };
  const asking = (id: string): ToolCall => ({
    id,
    name: id,
    arguments: '{}',
    info: { type: 'mcp', serverId: 's', serverName: 's', name: id },
    route: { to: 'server', effect: 'once', approval: true, callHash: id },
  });
  const texts = { content: '', refusal: '', reasoning: '', finishReason: 'tool_calls' as const };
  const records = [{ ...message, ...texts, toolCalls: [asking('a'), asking('b')] }];
  const subject = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const answer = (id: string, status: 'allow' | 'deny', toolCallId: string): HistoryEvent => ({
    type: 'commanded',
    command: {
      type: 'answer',
      id,
      subject,
      roles: ['user'],
      mayDecide: true,
      mayRespond: true,
      answers: [{ type: 'user.tool_approval', threadId: 'main', toolCallId, approval: { status } }],
    },
  });
  const events: HistoryEvent[] = [
    { type: 'started', at: AT, start },
    { type: 'scheduled', eventId: 5, at: AT, activity: { name: 'callModel', input } },
    { type: 'ended', scheduledEventId: 5, at: AT, end: { how: 'completed', records, stamp: 's' } },
    { type: 'taskStarted', at: AT },
    { type: 'taskCompleted' },
    answer('req_1', 'allow', 'unknown'),
    answer('req_2', 'allow', 'a'),
    answer('req_3', 'deny', 'a'),
    answer('req_4', 'deny', 'b'),
    { type: 'taskStarted', at: AT },
    { type: 'taskCompleted' },
  ];
  for (const event of events) projection.feed(event);
  expect([...projection.judged.verdicts].map(([id, verdict]) => [id, verdict?.code])).toEqual([
    ['req_1', 'call_not_pending'],
    ['req_2', undefined],
    ['req_3', 'already_decided'],
    ['req_4', undefined],
  ]);
});

test('the log of a turn from the queue begins when it begins; one that ends in the queue has just that', () => {
  const start = turnStart({ queued: { number: 4, position: 2 }, sequence: 0, previousTurnId: null });
  const begun = turnStart({ begun: { at: '2026-11-21T09:00:00.000Z', queuedRunId: 'run' }, previousTurnId: 'turn_0' });
  const queued: HistoryEvent[] = [{ type: 'started', at: AT, start }];
  const later = project([
    ...queued,
    { type: 'continued', at: AT, runId: 'run' },
    { type: 'started', at: AT, start: begun },
  ]);
  expect(later).toMatchObject([{ ordinal: 1, record: { kind: 'turn.created', previousTurnId: 'turn_0' } }]);
  expect(later[0]?.record).not.toHaveProperty('queued');
  expect(firstCallOf(begun).createdAt).toBe('2026-11-21T09:00:00.000Z');
  const closes = [
    { how: 'completed', result: { status: 'cancelled', reason: 'client-cancelled' } },
    { how: 'terminated', reason: 'abandoned' },
  ] as const;
  for (const close of closes) {
    const ended = project([...queued, { type: 'closed', at: AT, close }]);
    expect(ended).toMatchObject([
      { ordinal: 1, record: { kind: 'turn.created', previousTurnId: null, queued: { position: 2 } } },
      { ordinal: 2, record: { kind: 'turn.done', end: { status: 'cancelled' } } },
    ]);
  }
});

test('a call that waits behind one that asks has no result in its turn, and is pending without being asked about', async () => {
  const held: PendingCall = { ...call('b'), needs: 'order', source: { ...source, index: 1 } };
  const result: TurnResult = { status: 'done', pending: [call('a'), held] };
  const entries = project([
    { type: 'started', at: AT, start: turnStart({ resumes: { pending: [held] }, input: [] }) },
    { type: 'closed', at: AT, close: { how: 'completed', result } },
  ]);
  expect(entries.map(({ record }) => record.kind)).toEqual(['turn.created', 'tool.approval_required', 'turn.done']);
  const row = { archived: 1, archived_through: 3, queue_number: null, sequence: 1, session_id: 'ses_1' };
  const catalog = { turns: { get: () => row }, archive: { read: () => [entries.at(-1)] } };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what an archived turn needs
  const sources = { catalog } as unknown as ConstructorParameters<typeof TurnLogReader>[0];
  expect(await new TurnLogReader(sources).status(TURN_ID)).toMatchObject({ pending: result.pending });
  expect(refuseInput([DENIAL], result.pending, 0)).toBeUndefined();
  expect(refuseInput([DENIAL, { ...DENIAL, toolCallId: 'b' }], result.pending, 0)?.code).toBe('call_not_pending');
});

test('a turn of rules that this version does not have is not projected by others', () => {
  const start = turnStart({ rules: TURN_RULES + 1 });
  expect(() => new Turn().started(start)).toThrow(`follows the rules ${TURN_RULES + 1}`);
  expect(new Turn().started(turnStart({ rules: TURN_RULES }))).toHaveLength(1);
});
