import { expect, test } from 'vitest';
import { AT, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { EndedActivity, EndFacts } from './attempts.ts';
import type { ActivityResult, HistoryEvent, ScheduledActivity } from './history.ts';
import { emptyText } from './message.ts';
import type { LogEntry, NewRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import { TurnFacts } from './turn-facts.ts';
import { Turn } from './turn.ts';

const START: HistoryEvent = { type: 'started', at: AT, start: turnStart() };

function message(toolCalls: ModelMessage['toolCalls'] = []): ModelMessage {
  const rest = { ...emptyText(), finishReason: 'stop' as const };
  return { kind: 'model.message', id: 'msg_1', at: AT, threadId: 'main', ...rest, toolCalls };
}

function modelCall(): ScheduledActivity {
  const input = { ...turnStart(), threadId: 'main', messageId: 'msg_1', createdAt: AT, upTo: 1, step: 1, recent: [] };
  return { name: 'callModel', input };
}

/** The events of an activity, whose third attempt was the last one. */
function activity(eventId: number, scheduled: ScheduledActivity, end: ActivityResult, facts: EndFacts): HistoryEvent[] {
  const before = { isLost: true };
  return [
    { type: 'scheduled', eventId, activityId: String(eventId), at: time(0), activity: scheduled },
    { type: 'begun', scheduledEventId: eventId, facts: { number: 3, at: time(7), worker: 'w3', before } },
    { type: 'ended', scheduledEventId: eventId, at: time(9), end, facts },
  ];
}

function time(second: number): string {
  return `2026-11-22T08:00:0${second}.000Z`;
}

function logOf(events: HistoryEvent[]): LogEntry[] {
  const turn = new Turn();
  return events.flatMap((event) => turn.feed(event));
}

const completed = (records: NewRecord[]): ActivityResult => ({ how: 'completed', records, stamp: 's' });

const reported = [
  { number: 1, startedAt: time(0), endedAt: time(1), worker: 'w1', outcome: 'failed' as const, failure: 'overloaded' },
  { number: 3, provider: 'openai' },
];

const attempts = [
  reported[0],
  // Only the end of the second one is known, from the begin of the third.
  { number: 2, outcome: 'lost' },
  { number: 3, startedAt: time(7), endedAt: time(9), worker: 'w3', outcome: 'completed', provider: 'openai' },
];

const place = { name: 'callModel', threadId: 'main', messageId: 'msg_1', scheduledAt: time(0) };

test('the record of a call has its attempts: the reported ones, and the last one as the history has it', () => {
  const connected: NewRecord = { kind: 'mcp.initialize', at: AT, threadId: 'main', servers: [] };
  const end = completed([connected, message()]);
  const log = logOf([START, ...activity(2, modelCall(), end, { outcome: 'completed', reported })]);
  expect(log.map(({ record }) => record.activities)).toEqual([undefined, undefined, [{ ...place, attempts }]]);
});

test('an activity that makes no record of its own is in the next record, and its attempts are in no output', () => {
  const none = activity(2, modelCall(), completed([]), { outcome: 'completed', reported });
  const call = activity(5, modelCall(), completed([message()]), { outcome: 'completed' });
  const close: HistoryEvent = {
    type: 'closed',
    at: time(9),
    close: { how: 'completed', result: { status: 'done', pending: [] } },
  };
  const log = logOf([START, ...none, ...call, close]);
  expect(log.map(({ record: { kind, activities } }) => [kind, activities?.length])).toEqual([
    ['turn.created', undefined],
    ['model.message', 2],
    ['turn.done', undefined],
  ]);
  expect(JSON.stringify(log.at(-1))).not.toContain('activities');
});

test('the end of a turn has the activities that were running', () => {
  const [scheduled] = activity(2, modelCall(), completed([]), { outcome: 'completed' });
  const close: HistoryEvent = { type: 'closed', at: time(9), close: { how: 'terminated', reason: 'abandoned' } };
  const log = logOf([START, ...(scheduled ? [scheduled] : []), close]);
  expect(log.at(-1)?.record).toMatchObject({ kind: 'turn.done', activities: [{ ...place, attempts: [] }] });
});

test('a reader of a later run alone has the same log as one of all runs', () => {
  const none = activity(2, modelCall(), completed([]), { outcome: 'completed', reported });
  const turn = new Turn();
  for (const event of [START, ...none]) turn.feed(event);
  const { open } = turn;
  const carry = { ...open, results: [], previousRunId: 'run_1', deadline: 0 };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a run that has started has a state
  const next: HistoryEvent = { type: 'started', at: AT, start: turnStart({ carry } as never) };
  const rest = [next, ...activity(2, modelCall(), completed([message()]), { outcome: 'completed' })];
  const continued = rest.flatMap((event) => turn.feed(event));
  expect(continued).toEqual(logOf(rest));
  expect(continued[0]?.record.activities).toHaveLength(1);
});

test('the activities that run are found by their names in descriptions', () => {
  const turn = new Turn();
  for (const event of [START, ...activity(2, modelCall(), completed([]), { outcome: 'completed' }).slice(0, 1)])
    turn.feed(event);
  expect(turn.openActivities).toEqual([{ activityId: '2', ...place }]);
  expect(turn.start?.turnId).toBe(TURN_ID);
});

/** The log entries of one event to which facts are added: the results of two calls. */
const RESULTS = ['c0', 'c1'].map((toolCallId, i): LogEntry => {
  const response = { kind: 'tool.response' as const, id: `evt_${i}`, at: AT, threadId: 'main', toolCallId };
  return { ordinal: i + 1, record: { ...response, outcome: 'succeeded', content: '' } };
});

/** Messages of a sub-agent and of the root agent. */
const MESSAGES = ['thr_1', 'main'].map((threadId, i): LogEntry => ({
  ordinal: i + 1,
  record: { ...message(), threadId },
}));

function toolCall(toolCallId: string): ScheduledActivity {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what facts read
  return { name: 'callTool', input: { threadId: 'main', toolCallId } } as ScheduledActivity;
}

/** The activities of each entry of the last event, which ends an activity that has begun. */
function carriedBy(entries: LogEntry[], scheduled: ScheduledActivity, end = completed([])): unknown[] {
  const facts = new TurnFacts();
  const events = activity(2, scheduled, end, { outcome: 'completed' });
  const all = events.map((event, i) => facts.addTo(i === 2 ? entries : [], event));
  return all.at(-1)?.map(({ record }) => record.activities?.map(withoutAttempts)) ?? [];
}

function withoutAttempts(ended: EndedActivity): object {
  const { attempts: _, ...rest } = ended;
  return rest;
}

const ran = (fields: object) => [{ threadId: 'main', scheduledAt: time(0), ...fields }];

const OF_MODEL = { name: 'callModel', messageId: 'msg_1' };

test('the record of a call or of a message has its activity; without one of its own it is in the first record', () => {
  expect(carriedBy(RESULTS, toolCall('c1'))).toEqual([undefined, ran({ name: 'callTool', toolCallId: 'c1' })]);
  expect(carriedBy(RESULTS, toolCall('c2'))).toEqual([ran({ name: 'callTool', toolCallId: 'c2' }), undefined]);
  expect(carriedBy(RESULTS, modelCall())).toEqual([ran(OF_MODEL), undefined]);
  expect(carriedBy(MESSAGES, modelCall())).toEqual([undefined, ran(OF_MODEL)]);
  expect(carriedBy(MESSAGES, toolCall('c1'))).toEqual([ran({ name: 'callTool', toolCallId: 'c1' }), undefined]);
  const { input } = modelCall();
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what facts read
  const connecting = { name: 'connectTools', input } as ScheduledActivity;
  expect(carriedBy(RESULTS, connecting)).toEqual([ran({ name: 'connectTools' }), undefined]);
});

test('an activity has the status of its model call, if it has completed with one', () => {
  const statusOf = (end: ActivityResult) => carriedBy(MESSAGES.slice(1), modelCall(), end)[0];
  const ended = { how: 'completed' as const, records: [] };
  expect(statusOf({ ...ended, outcome: { status: 'answered' } })).toEqual(ran({ ...OF_MODEL, status: 'answered' }));
  for (const end of [ended, { how: 'failed' as const, message: '' }])
    expect(statusOf(end)).toStrictEqual(ran(OF_MODEL));
});

test('the last record of a turn has what was running, and after it nothing runs', () => {
  const [scheduled = START] = activity(2, toolCall('c1'), completed([]), { outcome: 'completed' });
  const close: HistoryEvent = { type: 'closed', at: time(9), close: { how: 'terminated', reason: 'abandoned' } };
  const facts = new TurnFacts();
  facts.addTo([], scheduled);
  expect(facts.open).toMatchObject([{ name: 'callTool', toolCallId: 'c1' }]);
  expect(facts.addTo(RESULTS, close).map(({ record }) => record.activities?.length)).toEqual([undefined, 1]);
  expect(facts.open).toEqual([]);
});

test('the next run of a turn begins without the activities of the one before', () => {
  const facts = new TurnFacts();
  const [scheduled = START, ...rest] = activity(2, toolCall('c1'), completed([]), { outcome: 'completed' });
  for (const event of [scheduled, START, ...rest]) expect(facts.addTo(RESULTS, event)).toBe(RESULTS);
  expect(facts.open).toEqual([]);
});
