import { expect, test } from 'vitest';
import { turnStart } from '../../test/support/random-turn.ts';
import type { EndedActivity } from './attempts.ts';
import { emptyText } from './message.ts';
import type { WithoutId } from './records/base.ts';
import type { ToolCall } from './records/calls.ts';
import type { LogRecord } from './records/log.ts';
import type { PendingCall } from './records/pending.ts';
import { NO_USAGE } from './records/usage.ts';
import { calledTool, Timeline, type PendingActivity, type Span } from './timeline.ts';
import { turnCreated } from './turn.ts';

const bob = { subjectId: 'bob', subjectType: 'user', subjectSlug: 'bob' };

function at(second: number): string {
  return `2026-11-22T08:00:${String(second).padStart(2, '0')}.000Z`;
}

function spans(records: WithoutId<LogRecord>[], pending: PendingActivity[] = []): Span[] {
  const timeline = new Timeline();
  for (const [i, record] of records.entries()) timeline.add({ id: `evt_${i}`, ...record });
  return timeline.ordered(pending);
}

const created = turnCreated(turnStart({ createdAt: at(0) }));

function call(id: string, route: ToolCall['route']): ToolCall {
  const info = { type: 'mcp' as const, serverId: 's', serverName: 'crm', name: 'find' };
  return { id, name: 'crm_find', arguments: '{}', info, route };
}

const RUN = { to: 'server', effect: 'retry', approval: false, callHash: 'h' } as const;

function message(second: number, more: Partial<Extract<LogRecord, { kind: 'model.message' }>> = {}) {
  const rest = { ...emptyText(), toolCalls: [], finishReason: 'stop' as const };
  return { kind: 'model.message' as const, id: `msg_${second}`, at: at(second), threadId: 'main', ...rest, ...more };
}

function response(second: number, toolCallId: string, more: object = {}) {
  const rest = { threadId: 'main', outcome: 'succeeded' as const, content: '' };
  return { kind: 'tool.response' as const, at: at(second), toolCallId, ...rest, ...more };
}

function asked(toolCallId: string, more: object = {}): PendingCall & { needs: 'approval' } {
  const source = { turnId: 'turn_1', messageId: 'msg_1', stamp: 's', index: 0 };
  return { threadId: 'main', toolCallId, needs: 'approval', source, ...more };
}

test('calls are spans, one for each attempt; the last one has what came of the call', () => {
  const model: EndedActivity = {
    name: 'callModel',
    threadId: 'main',
    messageId: 'msg_1',
    scheduledAt: at(1),
    status: 'answered',
    attempts: [
      {
        number: 1,
        startedAt: at(2),
        endedAt: at(3),
        worker: 'w1',
        outcome: 'lost',
      },
      {
        number: 2,
        startedAt: at(4),
        endedAt: at(5),
        worker: 'w2',
        outcome: 'completed',
        address: 'here:80',
      },
    ],
  };
  const tool: EndedActivity = {
    name: 'callTool',
    threadId: 'main',
    toolCallId: 'call_1',
    scheduledAt: at(6),
    attempts: [
      {
        number: 1,
        startedAt: at(7),
        endedAt: at(8),
        worker: 'w2',
        outcome: 'completed',
      },
    ],
  };
  const usage = { ...NO_USAGE, inputTokens: 3, costInUsd: 1 };
  const answer = message(1, {
    toolCalls: [call('call_1', RUN)],
    usage,
    provider: 'openai',
    model: 'm',
    activities: [model],
  });
  const failed = response(8, 'call_1', { outcome: 'failed', activities: [tool] });
  const place = { kind: 'model_call', threadId: 'main', messageId: 'msg_1' };
  const scheduledAt = at(1);
  const called = { provider: 'openai', model: 'm', address: 'here:80' };
  expect(spans([created, answer, failed])).toEqual([
    { ...place, scheduledAt, attempt: 1, startedAt: at(2), endedAt: at(3), worker: 'w1', outcome: 'lost' },
    { ...place, attempt: 2, startedAt: at(4), endedAt: at(5), worker: 'w2', outcome: 'answered', ...called, usage },
    {
      kind: 'tool_call',
      threadId: 'main',
      toolCallId: 'call_1',
      scheduledAt: at(6),
      server: 'crm',
      tool: 'find',
      attempt: 1,
      startedAt: at(7),
      endedAt: at(8),
      worker: 'w2',
      outcome: 'failed',
    },
  ]);
});

test('a log without attempts gives the spans of its calls, with what is known of them', () => {
  const attempts = [{ provider: 'openai', model: 'm', failure: 'overloaded' }];
  const answer = message(1, {
    provider: 'claude',
    model: 'x',
    attempts,
    toolCalls: [call('call_1', RUN), call('call_2', { to: 'answered' }), call('call_3', { to: 'client' })],
  });
  const denied = response(6, 'call_4', { outcome: 'denied' });
  const rest = [response(5, 'call_1'), response(5, 'call_2'), response(5, 'call_3', { by: bob }), denied];
  expect(spans([created, answer, ...rest])).toMatchObject([
    { kind: 'model_call', attempt: 1, provider: 'openai', failure: 'overloaded', outcome: 'failed' },
    { kind: 'model_call', provider: 'claude', scheduledAt: at(1) },
    { kind: 'tool_call', toolCallId: 'call_1', endedAt: at(5), outcome: 'succeeded', tool: 'find' },
  ]);
});

test('waits are spans, which end with the decision that is the last one needed, or with the result', () => {
  const vote = { kind: 'tool.decided' as const, threadId: 'main', decision: 'allow' as const, by: bob };
  const records: WithoutId<LogRecord>[] = [
    {
      kind: 'tool.approval_required',
      at: at(1),
      threadId: 'main',
      calls: ['call_1', 'call_2', 'call_3'].map((id) => asked(id)),
    },
    { kind: 'tool.response_required', at: at(2), threadId: 'main', calls: [asked('call_4', { needs: 'response' })] },
    { ...vote, at: at(3), toolCallId: 'call_1', remaining: 1 },
    { ...vote, at: at(4), toolCallId: 'call_1', remaining: 0 },
    { kind: 'tool.decided', threadId: 'main', at: at(5), toolCallId: 'call_2', decision: 'expired', remaining: 1 },
    response(6, 'call_4', { by: bob }),
  ];
  const wait = { kind: 'wait', threadId: 'main', waitsFor: 'approval', waitedFor: 'person', startedAt: at(1) };
  expect(spans([created, ...records])).toEqual([
    { ...wait, toolCallId: 'call_1', endedAt: at(4), outcome: 'allow', endedBy: bob },
    { ...wait, toolCallId: 'call_2', endedAt: at(5), outcome: 'expired' },
    { ...wait, toolCallId: 'call_3', isOpen: true },
    {
      ...wait,
      toolCallId: 'call_4',
      waitsFor: 'response',
      waitedFor: 'client',
      startedAt: at(2),
      endedAt: at(6),
      outcome: 'succeeded',
      endedBy: bob,
    },
  ]);
});

test('the answers with which a turn begins end waits of the turn before', () => {
  const approval = { status: 'allow' as const };
  const input = [{ type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'call_1', approval, by: bob }];
  expect(spans([{ ...created, input }])).toEqual([
    {
      kind: 'wait',
      waitsFor: 'approval',
      threadId: 'main',
      toolCallId: 'call_1',
      endedAt: at(0),
      outcome: 'allow',
      endedBy: bob,
    },
  ]);
});

test('pauses, sub-agents, the queue and sign-ins are spans', () => {
  const thread = {
    threadId: 'thr_1',
    title: 'read',
    parent: asked('call_1'),
    depth: 1,
    specHash: 'a',
    hasServers: false,
    iterations: 5,
  };
  const server = { id: 's', name: 'crm', authUrl: '', signInId: 'con_1' };
  const next: EndedActivity = {
    name: 'callModel',
    threadId: 'main',
    messageId: 'msg_9',
    scheduledAt: at(9),
    attempts: [],
  };
  const records: WithoutId<LogRecord>[] = [
    { ...created, begunAt: at(1) },
    { kind: 'thread.created', at: at(2), thread, input: '' },
    { kind: 'turn.paused', at: at(3), reason: 'requested', by: bob },
    { kind: 'turn.resumed', at: at(4), reason: 'requested', by: bob },
    { kind: 'mcp.auth_required', at: at(5), threadId: 'main', servers: [server], calls: [] },
    {
      kind: 'thread.done',
      at: at(6),
      threadId: 'thr_1',
      title: 'read',
      parent: thread.parent,
      end: { status: 'error', message: '' },
    },
    { kind: 'turn.paused', at: at(6), reason: 'sign_in' },
    { kind: 'turn.resumed', at: at(8), reason: 'sign_in', by: bob },
    message(9, { activities: [next] }),
  ];
  expect(spans(records)).toMatchObject([
    { kind: 'queue', startedAt: at(0), endedAt: at(1) },
    { kind: 'thread', threadId: 'thr_1', title: 'read', startedAt: at(2), endedAt: at(6), outcome: 'error' },
    { kind: 'pause', waitsFor: 'requested', startedAt: at(3), endedAt: at(4), startedBy: bob, endedBy: bob },
    { kind: 'wait', waitsFor: 'sign_in', server: 'crm', startedAt: at(5), endedAt: at(8), endedBy: bob },
    { kind: 'pause', waitsFor: 'sign_in', startedAt: at(6), endedAt: at(8), endedBy: bob },
    { kind: 'model_call', scheduledAt: at(9) },
  ]);
});

test('a sign-in that no pause waits for ends when what has waited for it is tried again', () => {
  const server = { id: 's', name: 'crm', authUrl: '', signInId: 'con_1' };
  const required: WithoutId<LogRecord> = {
    kind: 'mcp.auth_required',
    at: at(5),
    threadId: 'main',
    servers: [server],
    calls: [
      {
        ...asked('call_1'),
        needs: 'sign_in',
      },
    ],
  };
  const again: EndedActivity = {
    name: 'callTool',
    threadId: 'main',
    toolCallId: 'call_1',
    scheduledAt: at(7),
    attempts: [],
  };
  expect(spans([created, required, response(9, 'call_1', { activities: [again] })])).toMatchObject([
    { kind: 'wait', waitsFor: 'sign_in', toolCallId: 'call_1', startedAt: at(5), endedAt: at(7) },
    { kind: 'tool_call', scheduledAt: at(7), outcome: 'succeeded' },
  ]);
});

test('a turn that ends leaves its questions open only if it is done', () => {
  const question: WithoutId<LogRecord> = {
    kind: 'tool.approval_required',
    at: at(1),
    threadId: 'main',
    calls: [asked('call_1')],
  };
  const totals = { usage: NO_USAGE, modelCalls: 1, toolCalls: 1, waitedMs: 0, workedMs: 0 };
  const done = { kind: 'turn.done', at: at(9), ...totals } as const;
  const left = { status: 'done', output: null, requiredActions: [] } as const;
  expect(spans([created, question, { ...done, end: { ...left, requiredActions: [] } }])).toMatchObject([
    { isOpen: true },
  ]);
  const cancelled = spans([created, question, { ...done, end: { status: 'cancelled', reason: 'client-cancelled' } }]);
  expect(cancelled).toMatchObject([{ endedAt: at(9), outcome: 'cancelled' }]);
  expect(cancelled[0]).not.toHaveProperty('isOpen');
});

test('running work is open, and work that has ended since is in the log alone', () => {
  const running = { name: 'callModel', threadId: 'main', messageId: 'msg_1', scheduledAt: at(1) } as const;
  const attempts = [
    { number: 1, startedAt: at(1), endedAt: at(2), outcome: 'failed' as const },
    { number: 2, startedAt: at(3), worker: 'w1' },
  ];
  const place = { kind: 'model_call', threadId: 'main', messageId: 'msg_1' };
  const scheduledAt = at(1);
  expect(spans([created], [{ ...running, attempts }])).toEqual([
    { ...place, scheduledAt, attempt: 1, startedAt: at(1), endedAt: at(2), outcome: 'failed' },
    { ...place, attempt: 2, startedAt: at(3), worker: 'w1', isOpen: true },
  ]);
  const ended = message(1, { activities: [{ ...running, attempts: [] }] });
  expect(spans([created, ended], [{ ...running, attempts }])).toHaveLength(1);
});

test('a call of code that its host has run is a span from its message to its result', () => {
  const ran = { to: 'answered', ran: true } as const;
  const ofCode = { threadId: 'code_1', toolCalls: [call('c1', ran)], fromCode: true as const };
  const records = [created, message(3, ofCode), response(4, 'c1', { threadId: 'code_1' })];
  expect(spans(records).filter(({ kind }) => kind === 'tool_call')).toEqual([
    {
      kind: 'tool_call',
      threadId: 'code_1',
      toolCallId: 'c1',
      server: 'crm',
      tool: 'find',
      startedAt: at(3),
      endedAt: at(4),
      outcome: 'succeeded',
    },
  ]);
});

const wait = { kind: 'wait', threadId: 'main' };

test('a delegated call is a call, and then a wait for the agent until its result', () => {
  const delegating: EndedActivity = {
    name: 'callTool',
    threadId: 'main',
    toolCallId: 'c1',
    scheduledAt: at(2),
    attempts: [{ number: 1, startedAt: at(2), endedAt: at(3), outcome: 'completed' }],
  };
  const calls = message(1, { toolCalls: [call('c1', { to: 'session', sessionId: 'ses_2', callHash: 'h' })] });
  const later = message(4, { threadId: 'thr_1', activities: [delegating] });
  const waiting = { ...wait, toolCallId: 'c1', waitsFor: 'agent', startedAt: at(3) };
  expect(spans([created, calls, later])).toContainEqual({ ...waiting, isOpen: true });
  expect(spans([created, calls, later, response(9, 'c1', { fromThread: 'main' })])).toContainEqual({
    ...waiting,
    endedAt: at(9),
    outcome: 'succeeded',
  });
  const local = message(1, { toolCalls: [call('c1', RUN)] });
  expect(spans([created, local, later]).filter(({ kind }) => kind === 'wait')).toEqual([]);
});

test('an attempt has the outcome and the usage of its own record only', () => {
  const attempts = [{ number: 1, startedAt: at(2), endedAt: at(3), outcome: 'completed' as const }];
  const model: EndedActivity = {
    name: 'callModel',
    threadId: 'main',
    messageId: 'msg_1',
    scheduledAt: at(2),
    attempts,
  };
  const usage = { ...NO_USAGE, inputTokens: 3 };
  const outcomes = (record: WithoutId<LogRecord>, activity: EndedActivity) => {
    const all = spans([created, { ...record, activities: [activity] }]);
    return all
      .filter(({ attempt }) => attempt === 1)
      .map(({ outcome, provider, usage: used }) => [outcome, provider, used]);
  };
  const other = message(4, { threadId: 'thr_1', provider: 'p', usage });
  expect(outcomes(other, model)).toEqual([['completed', undefined, undefined]]);
  expect(outcomes({ ...other, threadId: 'main' }, model)).toEqual([['completed', 'p', usage]]);
  expect(outcomes(response(4, 'c1', { outcome: 'failed' }), model)).toEqual([['completed', undefined, undefined]]);
  const tool: EndedActivity = { name: 'callTool', threadId: 'main', toolCallId: 'c1', scheduledAt: at(2), attempts };
  expect(outcomes(response(4, 'c1', { outcome: 'failed' }), tool)).toEqual([['failed', undefined, undefined]]);
  expect(outcomes(response(4, 'c2', { outcome: 'failed' }), tool)).toEqual([['completed', undefined, undefined]]);
  const lost: EndedActivity = { ...model, status: 'error', attempts: [{ number: 1, outcome: 'lost' }] };
  expect(outcomes(message(4), lost)).toEqual([['lost', undefined, undefined]]);
});

test('a turn that waits in the queue is a span until it begins, or ends', () => {
  const queue = { kind: 'queue', threadId: null, startedAt: at(0) };
  const done = { kind: 'turn.done', at: at(5), end: { status: 'done', output: null, requiredActions: [] } } as never;
  const queued = { ...created, queued: { position: 1 } };
  expect(spans([queued])).toEqual([{ ...queue, isOpen: true }]);
  expect(spans([queued, done])).toEqual([{ ...queue, endedAt: at(5), outcome: 'cancelled' }]);
  expect(spans([{ ...created, begunAt: at(3) }])).toEqual([{ ...queue, endedAt: at(3) }]);
});

test('the refresh of toolkits is a wait for the client', () => {
  const required = { kind: 'toolkit.refresh_required', at: at(1), toolkits: ['crm'] } as never;
  const refreshed = { kind: 'toolkit.refreshed', at: at(2), toolkit: 'crm', by: bob } as never;
  const waiting = { kind: 'wait', waitsFor: 'toolkits', waitedFor: 'client', threadId: null, startedAt: at(1) };
  expect(spans([created, required])).toEqual([{ ...waiting, isOpen: true }]);
  expect(spans([created, required, refreshed])).toEqual([{ ...waiting, endedAt: at(2), endedBy: bob }]);
});

test('only a pause for sign-ins ends the waits for them, and no other wait', () => {
  const signIn = { kind: 'mcp.auth_required', at: at(1), threadId: 'main', servers: [{ name: 'crm' }] } as const;
  const forCall = { ...signIn, calls: [{ threadId: 'main', toolCallId: 'c1' }] } as never;
  const approval = { kind: 'tool.approval_required', at: at(1), threadId: 'main', calls: [asked('c2')] } as never;
  const open = (reason: string) => {
    const resumed = { kind: 'turn.resumed', at: at(2), reason } as never;
    return spans([created, forCall, approval, resumed])
      .filter(({ isOpen }) => isOpen)
      .map(({ waitsFor }) => waitsFor);
  };
  expect([open('budget'), open('sign_in')]).toEqual([['sign_in', 'approval'], ['approval']]);
});

test('a lost outcome is asked for as such, and a call of a tool without a server is named', () => {
  const lost = {
    kind: 'tool.response_required',
    at: at(2),
    threadId: 'main',
    calls: [asked('c1', { needs: 'response', unknownOutcome: '' })],
  };
  expect(spans([created, lost as never])).toEqual([
    { ...wait, toolCallId: 'c1', waitsFor: 'outcome', waitedFor: 'person', startedAt: at(2), isOpen: true },
  ]);
  expect(calledTool({ name: 'ask', info: { type: 'system', name: 'ask_user' } })).toEqual({ tool: 'ask' });
  expect(calledTool(undefined)).toEqual({});
});
