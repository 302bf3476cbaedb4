import { expect, test } from 'vitest';
import { AT, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { EndFacts } from './attempts.ts';
import type { ActivityResult, HistoryEvent, ScheduledActivity } from './history.ts';
import { emptyText } from './message.ts';
import type { LogEntry, NewRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
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
