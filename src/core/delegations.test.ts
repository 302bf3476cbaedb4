import { expect, test } from 'vitest';
import { continuation, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { ActivityResult, HistoryEvent, WorkflowClose } from './history.ts';
import { Turn } from './turn.ts';
import type { ToolCall } from './records/calls.ts';
import type { LogEntry } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import { openCallsOf } from './tool-records.ts';
import { TurnActions } from './turn-actions.ts';
import type { TurnCommand } from './turn-command.ts';
import type { DelegationResult } from './delegations.ts';
import { statesOf } from '../../test/support/tracked-calls.ts';

const BEGIN = Date.parse('2026-11-21T08:00:00.000Z');
const at = new Date(BEGIN).toISOString();
const start = turnStart({ pause: 'wait' });

const delegated = (id: string): ToolCall => ({
  id,
  name: 'delegate',
  arguments: '{}',
  info: { type: 'system', name: 'delegate' },
  route: { to: 'session', sessionId: `ses_${id}`, callHash: id },
});
const onClient = (id: string): ToolCall => ({ ...delegated(id), route: { to: 'client' } });

function messageOf(...toolCalls: ToolCall[]): ModelMessage {
  const texts = { content: '', refusal: '', reasoning: '' };
  return { kind: 'model.message', id: 'msg_1', at, threadId: 'main', ...texts, toolCalls, finishReason: 'tool_calls' };
}

const key = (toolCallId: string) => ({ threadId: 'main', toolCallId });
const succeeded = (content: string): DelegationResult => ({ outcome: 'succeeded', content });

function end(toolCallId: string, result = succeeded(`answer ${toolCallId}`), sessionId = `ses_${toolCallId}`) {
  return { type: 'delegation' as const, id: `end ${toolCallId}`, ...key(toolCallId), sessionId, result };
}

/** A turn whose agent has delegated these calls, and whose other agents work on them. */
function delegating(...ids: string[]): TurnActions {
  const actions = new TurnActions(start);
  actions.add(messageOf(...ids.map(delegated)), 's');
  for (const id of ids) actions.delegate(key(id));
  return actions;
}

/** The records of the end of a task, in short. */
function endTask(actions: TurnActions, commands: TurnCommand[] = [], after = 0): string[] {
  return actions.endTask(commands, BEGIN + after).records.map((record) => {
    if (record.kind === 'tool.response') return `${record.toolCallId} ${record.outcome} ${record.content}`;
    return 'reason' in record ? `${record.kind} ${record.reason}` : record.kind;
  });
}

test('a turn is paused while other agents work on its calls, and their first results count', () => {
  const actions = delegating('a', 'b');
  expect(actions.isUnsettled(BEGIN)).toBe(true);
  expect(endTask(actions)).toEqual(['turn.paused delegation']);
  expect([statesOf(actions), actions.isUnsettled(BEGIN)]).toEqual([{ a: 'delegated', b: 'delegated' }, false]);
  expect(endTask(actions, [end('a')])).toEqual(['a succeeded answer a']);
  const failed: DelegationResult = { outcome: 'failed', content: 'late' };
  expect(endTask(actions, [end('a', failed), end('b', succeeded('b'), 'ses_other')])).toEqual([]);
  expect(actions.delegations.started).toMatchObject([{ ...key('b'), sessionId: 'ses_b' }]);
  expect(endTask(actions, [end('b', failed), end('b')], 5_000)).toEqual(['b failed late', 'turn.resumed delegation']);
  expect([statesOf(actions), actions.pauses.waitedMs]).toEqual([{}, 5_000]);
});

test('the limit on the wait for answers does not hold while only other agents work', () => {
  const actions = new TurnActions({ ...start, limits: { ...start.limits, actionSeconds: 10 } });
  actions.add(messageOf(delegated('a'), onClient('b')), 's');
  actions.delegate(key('a'));
  endTask(actions);
  expect(actions.nextDue).toBe(BEGIN + 10_000);
  actions.ended(key('b'));
  expect(endTask(actions, [], 5_000)).toEqual(['turn.resumed action', 'turn.paused delegation']);
  expect(actions.nextDue).toBe(undefined);
  endTask(actions, [], 60_000);
  expect(actions.failure).toBe(undefined);
});

test('a turn that needs a client too is paused for that, until only other agents work', () => {
  const actions = new TurnActions(start);
  actions.add(messageOf(delegated('a'), onClient('b')), 's');
  actions.delegate(key('a'));
  expect(endTask(actions)).toEqual(['tool.response_required', 'turn.paused action']);
  const caller = { subject: start.createdBy, roles: [], mayDecide: true, mayRespond: true };
  const response = { type: 'user.tool_response' as const, ...key('b'), content: 'yes' };
  expect(endTask(actions, [{ type: 'answer', id: 'req_1', ...caller, answers: [response] }])).toEqual([
    'b succeeded yes',
    'turn.resumed action',
    'turn.paused delegation',
  ]);
});

test('a result that arrives before its session is known to exist is recorded after that, unless the call has failed', () => {
  const actions = new TurnActions(start);
  actions.add(messageOf(delegated('a'), delegated('b')), 's');
  expect(endTask(actions, [end('a'), end('b')])).toEqual([]);
  expect(actions.isUnsettled(BEGIN)).toBe(false);
  actions.delegate(key('a'));
  expect([actions.isUnsettled(BEGIN), endTask(actions)]).toEqual([true, ['a succeeded answer a']]);
  actions.ended(key('b'));
  actions.delegate(key('b'));
  expect(endTask(actions, [end('b')])).toEqual([]);
});

test('a call that was delegated in an earlier run does not run: a turn that is to fail stays paused for it', () => {
  const before = delegating('a');
  endTask(before);
  const next = new TurnActions(turnStart({ pause: 'wait', failsWithTools: true, carry: continuation(before.state) }));
  next.lackResult(key('b'));
  expect(endTask(next)).toEqual([]);
});

test('a turn that continues as new keeps its delegated calls, and one that is cancelled records no results', () => {
  const before = delegating('a');
  endTask(before);
  const next = new TurnActions(turnStart({ pause: 'wait', carry: continuation(before.state) }));
  expect([statesOf(next), endTask(next)]).toEqual([{ a: 'delegated' }, []]);
  expect(endTask(next, [end('a')])).toEqual(['a succeeded answer a', 'turn.resumed delegation']);
  const cancelled = delegating('a');
  endTask(cancelled);
  expect(cancelled.endTask([{ type: 'cancelled' }, end('a')], BEGIN).records).toEqual([]);
});

/** The log of a turn with a delegated call, after these events that follow the activity of the call. */
function logOf(activity: ActivityResult, ...events: HistoryEvent[]): string[] {
  const projection = new Turn();
  const entries: LogEntry[] = [];
  const feed = (...some: HistoryEvent[]) => entries.push(...some.flatMap((event) => projection.feed(event)));
  const [call] = openCallsOf(messageOf(delegated('a')), { turnId: TURN_ID, stamp: 's' });
  if (!call) throw new Error('a delegated call runs on the server');
  const place = { turnId: TURN_ID, sessionId: start.sessionId, threadId: 'main', specHash: 'a1', owner: start.owner };
  const plan = { messageId: 'msg_1', createdAt: at, upTo: 1 };
  const model = { ...place, ...plan, previousTurnId: null, sequence: 1, step: 1, recent: [] };
  feed({ type: 'started', at, start }, { type: 'taskStarted', at }, { type: 'taskCompleted' });
  feed({ type: 'scheduled', eventId: 1, at, activity: { name: 'callModel', input: model } });
  const records = [messageOf(delegated('a'))];
  feed({ type: 'ended', scheduledEventId: 1, at, end: { how: 'completed', records, stamp: 's' } });
  feed({ type: 'taskStarted', at }, { type: 'taskCompleted' });
  const tool = { ...place, toolCallId: 'a', source: call.source };
  feed({ type: 'scheduled', eventId: 2, at, activity: { name: 'callTool', input: tool } });
  feed(
    { type: 'ended', scheduledEventId: 2, at, end: activity },
    { type: 'taskStarted', at },
    { type: 'taskCompleted' },
  );
  feed(...events);
  return entries.map(({ record }) =>
    record.kind === 'tool.response' ? `${record.kind} ${record.outcome}` : record.kind,
  );
}

const STARTED: ActivityResult = { how: 'completed', records: [], stamp: 't', isDelegated: true };
const task: HistoryEvent[] = [{ type: 'taskStarted', at }, { type: 'taskCompleted' }];
const closed = (close: WorkflowClose): HistoryEvent => ({ type: 'closed', at, close });

test('the log has one outcome of a delegated call, however the turn ends', () => {
  const command: HistoryEvent = { type: 'commanded', command: end('a') };
  const paused = ['turn.created', 'model.message', 'turn.paused'];
  expect(logOf(STARTED, command, command, ...task)).toEqual([...paused, 'tool.response succeeded', 'turn.resumed']);
  const terminated = closed({ how: 'terminated', reason: 'abandoned' });
  expect(logOf(STARTED, command, terminated)).toEqual([...paused, 'tool.response unknown_outcome', 'turn.done']);
  const lost = logOf({ how: 'timed_out' }, command, ...task, terminated);
  expect(lost).toEqual(['turn.created', 'model.message', 'tool.response failed', 'turn.done']);
});

test('the log of the next run has the open call of the run before', () => {
  const before = delegating('a');
  endTask(before);
  const next = turnStart({ pause: 'wait', carry: continuation(before.state) });
  const projection = new Turn();
  projection.feed({ type: 'started', at, start: next });
  const entries = projection.feed(closed({ how: 'terminated', reason: 'client-cancelled' }));
  expect(entries.map(({ record }) => record)).toMatchObject([{ outcome: 'unknown_outcome' }, { kind: 'turn.done' }]);
});
