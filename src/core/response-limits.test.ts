import { expect, test } from 'vitest';
import { continuation, turnStart } from '../../test/support/random-turn.ts';
import type { CallModelInput, HistoryEvent, TurnBounds } from './history.ts';
import { firstCallOf, Turn } from './turn.ts';
import { TurnActions } from './turn-actions.ts';

const BEGIN = Date.parse('2026-11-21T08:00:00.000Z');
const by = { id: 'req_1', subject: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' } };

function startOf(limits: Partial<TurnBounds>) {
  const start = turnStart();
  return { ...start, limits: { ...start.limits, ...limits } };
}

const forcing = (actions: TurnActions, count: number | undefined, after = 0, isBegunByStart = false) =>
  actions.limits.forcing({ count, isBegunByStart }, BEGIN + after);

test('the last model call of the limit is forced, and each one after it; the input of the one before shows it', () => {
  const { limits } = new TurnActions(startOf({ iterations: 3, answersAtIterations: true }));
  const of = (count: number | undefined) => limits.forcing({ count, isBegunByStart: count === 1 }, BEGIN);
  expect(of(1)).toEqual({});
  expect(of(2)).toEqual({ forcedFromMs: 0 });
  for (const count of [3, 4]) expect(of(count)).toEqual({ isForced: true, limit: 'iterations' });
  // A sub-agent has a limit of its own, at which it fails.
  expect(of(undefined)).toEqual({});
});

test('the only model call of the limit is forced, although the start of the turn has begun it', () => {
  const actions = new TurnActions(startOf({ iterations: 1, answersAtIterations: true }));
  expect(forcing(actions, 1, 0, true)).toEqual({ isForced: true, limit: 'iterations' });
});

test('without the setting no model call is forced', () => {
  expect(forcing(new TurnActions(startOf({ iterations: 1 })), 1, 99_000)).toEqual({});
});

test('a model call of any thread is forced once the time is up, except the one that the start has begun', () => {
  const actions = new TurnActions(startOf({ answerAfterSeconds: 1.5 }));
  expect(forcing(actions, 1, 1_499)).toEqual({ forcedFromMs: BEGIN + 1_500 });
  expect(forcing(actions, undefined, 1_499)).toEqual({});
  const forced = { isForced: true, limit: 'time' };
  expect([forcing(actions, 2, 1_500), forcing(actions, undefined, 1_500)]).toEqual([forced, forced]);
  expect(forcing(actions, 1, 1_500, true)).toEqual({ forcedFromMs: BEGIN + 1_500 });
});

test('pauses and the queue of the session do not use up the time, across runs', () => {
  const begun = { at: new Date(BEGIN + 60_000).toISOString(), queuedRunId: 'r' };
  const start = { ...startOf({ answerAfterSeconds: 10 }), begun };
  const first = new TurnActions(start);
  first.endTask([{ type: 'pause', ...by }], BEGIN + 65_000);
  const actions = new TurnActions({ ...start, carry: continuation(first.state) });
  expect(forcing(actions, 2, 99_000)).toEqual({ forcedFromMs: BEGIN + 104_000 });
  actions.endTask([{ type: 'resume', ...by }], BEGIN + 100_000);
  expect(forcing(actions, 2, 104_999)).toEqual({ forcedFromMs: BEGIN + 105_000 });
  expect(forcing(actions, 2, 105_000)).toMatchObject({ limit: 'time' });
});

test('the end of the log names the limit, also in a later run', () => {
  const start = startOf({ iterations: 1, answersAtIterations: true });
  const call: CallModelInput = {
    ...start,
    ...firstCallOf(start),
    step: 1,
    recent: [],
    runId: 'r1',
    deadline: 0,
    isForced: true,
    limit: 'iterations',
  };
  const at = start.createdAt;
  const failed: HistoryEvent[] = [
    { type: 'started', at, start },
    { type: 'scheduled', eventId: 5, at, activity: { name: 'callModel', input: call } },
    { type: 'ended', scheduledEventId: 5, at, end: { how: 'timed_out' } },
  ];
  const closed: HistoryEvent = { type: 'closed', at, close: { how: 'terminated', reason: 'abandoned' } };
  const doneAfter = (events: HistoryEvent[]) => {
    const projection = new Turn();
    return [...events, closed].flatMap((event) => projection.feed(event)).at(-1)?.record;
  };
  const done = { kind: 'turn.done', limit: 'iterations' };
  expect(doneAfter(failed)).toMatchObject(done);

  // As the workflow, which has no projection.
  const actions = new TurnActions(start);
  expect(actions.state).not.toHaveProperty('limit');
  actions.limits.modelCalled(call);
  actions.limits.modelCalled({ limit: 'time' });
  const next: HistoryEvent = { type: 'started', at, start: { ...start, carry: continuation(actions.state) } };
  expect(doneAfter([next])).toMatchObject(done);
  expect(doneAfter([...failed, { type: 'continued', at, runId: 'r2' }, next])).toMatchObject(done);
  expect(doneAfter([{ type: 'started', at, start }])).not.toHaveProperty('limit');
});
