import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { continuation, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { Budget, BudgetAmounts } from './budget.ts';
import type { HistoryEvent, TurnStart } from './history.ts';
import { Turn } from './turn.ts';
import type { ToolCall } from './records/calls.ts';
import type { LogEntry } from './records/log.ts';
import { emptyResponse, type ModelMessage } from './records/message.ts';
import type { ToolResponse } from './records/results.ts';
import { NO_USAGE, UNREPORTED } from './records/usage.ts';
import { TurnActions } from './turn-actions.ts';
import type { TurnCommand } from './turn-command.ts';
import { addRecord, NO_TOTALS, type TurnTotals } from './turn-totals.ts';

const BEGIN = Date.parse('2026-11-21T08:00:00.000Z');
const ann = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
const isoTime = (time: number) => new Date(time).toISOString();

const startOf = (limit: BudgetAmounts, more: Partial<Budget> = {}, rest: Partial<TurnStart> = {}) =>
  turnStart({ budget: { scope: 'turn', limit, ...more }, ...rest });

type Route = 'run' | 'ask' | 'answered' | 'thread';
const ROUTES: Record<Route, ToolCall['route']> = {
  run: { to: 'server', effect: 'retry', approval: false, callHash: 'h' },
  ask: { to: 'server', effect: 'once', approval: true, callHash: 'h' },
  answered: { to: 'answered' },
  thread: { to: 'thread', threadId: 'thread_1' },
};

function messageOf(routes: Route[], more: Partial<ModelMessage> = {}): ModelMessage {
  const toolCalls = routes.map((route, i): ToolCall => {
    const id = `c${i}`;
    return { id, name: id, arguments: '{}', info: { type: 'system', name: id }, route: ROUTES[route] };
  });
  const texts = { content: '', refusal: '', reasoning: '' };
  const usage = { ...NO_USAGE, inputTokens: 6, outputTokens: 4 };
  const id = 'msg_1';
  const rest = { threadId: 'main', ...texts, toolCalls, finishReason: 'stop' as const, usage };
  return { kind: 'model.message', id, at: isoTime(BEGIN), ...rest, ...more };
}

let commands = 0;
const resume = (budget?: BudgetAmounts): TurnCommand => ({
  type: 'resume',
  id: `req_${commands++}`,
  subject: ann,
  ...(budget && { budget }),
});

function endTask(actions: TurnActions, given: TurnCommand[] = [], after = 0) {
  if (given.length === 0 && !actions.isUnsettled(BEGIN + after)) return [];
  return actions.endTask(given, BEGIN + after).records;
}

test('a turn is paused when its budget is reached, and resumed when it is raised above what was spent', () => {
  const actions = new TurnActions(startOf({ tokens: 15, steps: 9 }));
  actions.add(messageOf(['run']));
  expect([endTask(actions), actions.isHeld]).toEqual([[], false]);
  actions.add(messageOf(['run']));
  expect(actions.mustRecord(BEGIN)).toBe(true);
  const report = { scope: 'turn', limit: { tokens: 15, steps: 9 } };
  expect(endTask(actions, [], 3000)).toEqual([
    {
      kind: 'turn.paused',
      reason: 'budget',
      at: isoTime(BEGIN + 3000),
      budget: { ...report, spent: { tokens: 20, steps: 2, seconds: 3 } },
    },
  ]);
  expect([actions.isHeld, actions.isPaused]).toEqual([true, true]);
  for (const budget of [undefined, { tokens: 20 }, { steps: 100 }]) {
    const command = resume(budget);
    const { records, verdicts } = actions.endTask([command], BEGIN + 9000);
    expect([records, verdicts.get(command.id)?.code]).toEqual([[], 'budget_exceeded']);
  }
  expect(actions.isRepetition({ type: 'resume', id: 'r', subject: ann })).toBe(false);
  const enough = resume({ tokens: 21, steps: 1 });
  expect(endTask(actions, [enough], 10_000)).toMatchObject([
    // The time for which it was paused was not spent.
    {
      kind: 'turn.resumed',
      reason: 'budget',
      by: ann,
      budget: { limit: { tokens: 21, steps: 9 }, spent: { seconds: 3 } },
    },
  ]);
  expect([actions.isHeld, endTask(actions, [enough], 10_000)]).toEqual([false, []]);
});

test('the answer of a turn does not reach its budget, but a further message for the turn does', () => {
  const actions = new TurnActions(startOf({ steps: 1 }));
  actions.steering.modelCalled();
  const steer = { type: 'steer' as const, id: 's', subject: ann, sessionId: 'ses_1', messages: ['and?'] };
  expect(endTask(actions, [steer])).toEqual([]);
  actions.add(messageOf([]));
  actions.steering.modelEnded();
  expect(endTask(actions)).toMatchObject([{ kind: 'user.steered' }, { kind: 'turn.paused', reason: 'budget' }]);
  const other = new TurnActions(startOf({ steps: 1 }));
  other.add(messageOf([]));
  expect(endTask(other)).toEqual([]);
});

test.each<[Route[], 'wait' | undefined, Partial<ModelMessage>, boolean]>([
  [['run'], undefined, {}, true],
  [['thread'], undefined, {}, true],
  [['answered'], undefined, {}, true],
  [['ask', 'run'], undefined, {}, true],
  [['ask'], undefined, {}, false],
  [['ask', 'answered'], undefined, {}, false],
  [['ask'], 'wait', {}, true],
  [[], undefined, { structured: { fits: false, problem: 'x' } }, true],
  [['run'], 'wait', { finishReason: 'error' }, false],
  [['run'], 'wait', { finishReason: 'length' }, false],
  [[], undefined, { threadId: 'thread_1' }, true],
])(
  'a message with the calls %j (%s, %j) that reaches a budget pauses its turn: %s',
  (routes, pause, more, isPaused) => {
    const actions = new TurnActions(startOf({ tokens: 10 }, {}, pause && { pause }));
    actions.add(messageOf(routes, more), 's');
    endTask(actions);
    expect(actions.pauses.reasons.includes('budget')).toBe(isPaused);
  },
);

test('a turn that ends with a call that asks is not paused once its other calls have ended', () => {
  const begun = () => {
    const actions = new TurnActions(startOf({ seconds: 5 }));
    actions.add(messageOf(['ask', 'run', 'thread']), 's');
    expect(endTask(actions)).toEqual([]);
    return actions;
  };
  const response = (id: string): ToolResponse => ({
    kind: 'tool.response',
    id: 'evt_1',
    at: isoTime(BEGIN),
    threadId: 'main',
    toolCallId: id,
    outcome: 'succeeded',
    content: '',
  });
  const still = begun();
  still.add(response('c1'), 's');
  expect(endTask(still, [], 6_000)).toMatchObject([{ kind: 'turn.paused' }]);
  const over = begun();
  over.add(response('c1'), 's');
  over.add(response('c2'), 's');
  expect(endTask(over, [], 6_000)).toEqual([]);
});

test('a turn that is to end does, without cutting off what runs', () => {
  const actions = new TurnActions(startOf({ steps: 1 }, { ends: true }));
  actions.add(messageOf(['run']));
  expect([endTask(actions), actions.budget.failure, actions.isHeld]).toEqual([
    [],
    'The turn has used 1 of 1 model calls of its budget.',
    false,
  ]);
  expect(endTask(actions)).toEqual([]);
});

test('a turn that is to end does so for a budget that it shares, too', () => {
  const actions = new TurnActions(startOf({ steps: 9 }, { scope: 'session', ends: true }));
  actions.budget.sharedReached({ scope: 'session', limit: { steps: 9 }, spent: { steps: 9 } });
  expect([endTask(actions), actions.isPaused]).toEqual([[], false]);
  expect(actions.budget.failure).toBe('The session has used 9 of 9 model calls of its budget.');
});

test('an answer is not forced from a turn before its budget is raised', () => {
  const actions = new TurnActions(startOf({ steps: 1 }));
  actions.add(messageOf(['run']));
  endTask(actions);
  const force = { type: 'force_answer' as const, id: 'f', subject: ann };
  expect(actions.endTask([force], BEGIN).verdicts.get('f')?.code).toBe('budget_exceeded');
  expect(actions.isForced).toBe(false);
});

test('a budget that a turn shares pauses it, also without one of its own, until it has room again', () => {
  const actions = new TurnActions(turnStart());
  const shared = { scope: 'subject' as const, limit: { steps: 1 }, spent: { steps: 1 } };
  actions.budget.sharedReached(shared);
  // Its clients need not support the event.
  expect(endTask(actions)).toMatchObject([{ kind: 'turn.paused', reason: 'budget', budget: shared, isHidden: true }]);
  const next = new TurnActions(turnStart({ carry: continuation(actions.state) }));
  expect([next.isHeld, next.budget.shared]).toEqual([true, shared]);
  const plain = resume({ steps: 9 });
  expect(next.endTask([plain], BEGIN).verdicts.get(plain.id)?.code).toBe('budget_exceeded');
  const raised = { ...shared, limit: { steps: 2 } };
  expect(endTask(next, [{ ...resume(), shared: raised } as TurnCommand])).toMatchObject([
    { kind: 'turn.resumed', reason: 'budget', by: ann, budget: raised },
  ]);
  expect([next.isHeld, next.isUnsettled(BEGIN), next.budget.state]).toEqual([false, false, undefined]);
});

const happening = fc.oneof(
  fc.record({ type: fc.constant('result' as const), tokens: fc.nat({ max: 9 }), isFinal: fc.boolean() }),
  fc.constant({ type: 'lost' as const }),
  fc.record({ type: fc.constant('resume' as const), tokens: fc.nat({ max: 60 }), steps: fc.nat({ max: 12 }) }),
  fc.record({
    type: fc.constant('hold' as const),
    command: fc.constantFrom('pause' as const, 'force_answer' as const),
  }),
  fc.record({ type: fc.constant('task' as const), after: fc.nat({ max: 4_000 }) }),
  fc.constant({ type: 'continue' as const }),
);

test('workflow and projection agree on the records of a budget, and no call begins above it', () => {
  const budget = fc.record({ tokens: fc.nat({ max: 30 }), steps: fc.nat({ max: 6 }), seconds: fc.nat({ max: 9 }) });
  fc.assert(
    fc.property(budget, fc.boolean(), fc.array(happening, { maxLength: 40 }), (limit, ends, happenings) => {
      const log: LogEntry[] = [];
      let projection = new Turn();
      const feed = (event: HistoryEvent) => log.push(...projection.feed(event));
      const start = startOf(limit, ends ? { ends } : {});
      let actions = new TurnActions(start);
      actions.steering.modelCalled();
      let [totals, count, eventId, now, runs]: [TurnTotals, number, number, number, number] = [
        NO_TOTALS,
        1,
        5,
        BEGIN,
        0,
      ];
      let queue: TurnCommand[] = [];
      let calling: number | undefined;
      let isDone = false;
      const at = () => isoTime(now);
      const input = { ...start, threadId: 'main', messageId: 'msg_1', createdAt: at(), upTo: 1, step: 1, recent: [] };
      const call = (): void => {
        calling = eventId++;
        actions.steering.modelCalled();
        feed({ type: 'scheduled', eventId: calling, at: at(), activity: { name: 'callModel', input } });
      };
      const endTask = (after: number): void => {
        now += after;
        feed({ type: 'taskStarted', at: at() });
        if (queue.length > 0 || actions.isUnsettled(now)) count += actions.endTask(queue, now).records.length;
        queue = [];
        feed({ type: 'taskCompleted' });
        expect(log.length).toBe(count);
        if (calling !== undefined || isDone || actions.isHeld || actions.budget.failure !== undefined) return;
        const { tokens = 1, steps = 1 } = actions.budget.left(now) ?? {};
        expect([tokens > 0, steps > 0]).toEqual([true, true]);
        call();
      };
      feed({ type: 'started', at: at(), start });
      call();
      endTask(0);
      for (const one of happenings) {
        if (one.type === 'task') endTask(one.after);
        if (one.type === 'resume' || one.type === 'hold') {
          const given =
            one.type === 'resume' ? resume(one) : { type: one.command, id: `req_${commands++}`, subject: ann };
          queue.push(given);
          feed({ type: 'commanded', command: given });
        }
        if ((one.type === 'result' || one.type === 'lost') && calling !== undefined) {
          const ended = { type: 'ended' as const, scheduledEventId: calling, at: at() };
          calling = undefined;
          actions.steering.modelEnded();
          count += 1;
          if (one.type === 'lost') {
            isDone = true;
            feed({ ...ended, end: { how: 'timed_out' } });
            for (const record of emptyResponse(input, 'error', UNREPORTED)) actions.add(record);
            continue;
          }
          const usage = { ...NO_USAGE, inputTokens: one.tokens };
          isDone = one.isFinal;
          const message = messageOf(isDone ? [] : ['answered'], { id: `msg_${eventId}`, usage });
          feed({ ...ended, end: { how: 'completed', records: [message], stamp: 's' } });
          actions.add(message, 's');
          totals = addRecord(totals, message);
        }
        if (one.type === 'continue' && calling === undefined && queue.length === 0 && !actions.isUnsettled(now)) {
          runs += 1;
          const carry = continuation({ ordinal: count, ...totals, ...actions.state });
          feed({ type: 'continued', at: at(), runId: 'r' });
          if (runs % 2 === 0) projection = new Turn();
          feed({ type: 'started', at: at(), start: { ...start, carry } });
          actions = new TurnActions({ ...start, carry });
        }
      }
      endTask(0);
      feed({ type: 'closed', at: at(), close: { how: 'terminated', reason: 'abandoned' } });
      const reasons = log.flatMap(({ record }) =>
        'reason' in record && record.reason === 'budget' ? [record.kind] : [],
      );
      expect(reasons).toEqual(reasons.map((_, i) => (i % 2 === 0 ? 'turn.paused' : 'turn.resumed')));
      expect(log[0]?.record).toMatchObject({ turnId: TURN_ID });
    }),
    { numRuns: 500 },
  );
});

test('a call behind one that asks is no work ahead in a turn that ends then', () => {
  const order = { server: 's' };
  const toolCalls = messageOf(['ask', 'run']).toolCalls.map((call) => ({
    ...call,
    route: { ...call.route, order } as ToolCall['route'],
  }));
  for (const [pause, isPaused] of [
    [undefined, false],
    ['wait', true],
  ] as const) {
    const actions = new TurnActions(startOf({ tokens: 5 }, {}, pause && { pause }));
    actions.add(messageOf([], { toolCalls }), 's');
    endTask(actions);
    expect(actions.pauses.reasons.includes('budget')).toBe(isPaused);
  }
});

test('a resume is a repetition if all limits that it raises are at least that high', () => {
  const actions = new TurnActions(startOf({ tokens: 10, steps: 5 }));
  const isRepeated = (budget: BudgetAmounts) =>
    actions.isRepetition({ type: 'resume', id: 'r', subject: { ...ann, subjectType: 'user' }, budget });
  expect(isRepeated({ tokens: 10, steps: 5 })).toBe(true);
  expect(isRepeated({ tokens: 10 })).toBe(true);
  expect(isRepeated({ tokens: 11, steps: 5 })).toBe(false);
});

test('a turn is not paused for its budget while its model is called, whose message readers may have been shown', () => {
  const actions = new TurnActions(turnStart());
  actions.steering.modelCalled();
  actions.budget.sharedReached({ scope: 'subject', limit: { steps: 1 }, spent: { steps: 1 } });
  expect(actions.endTask([], BEGIN).records).toEqual([]);
  actions.steering.modelEnded();
  expect(endTask(actions)).toMatchObject([{ kind: 'turn.paused', reason: 'budget' }]);
});
