import { fc } from '../../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { Turn } from '../../core/turn.ts';
import type { LogRecord } from '../../core/records/log.ts';
import { hasOutput } from '../../core/records/turn.ts';
import { callKey } from '../../core/tool-records.ts';
import { askedCalls } from '../../../test/support/asked-calls.ts';
import { randomThreads } from '../../../test/support/random-threads.ts';
import { randomTurn, type TurnStep } from '../../../test/support/random-turn.ts';
import { randomWaiting } from '../../../test/support/random-waiting.ts';
import { SEED } from '../../../test/support/seed.ts';
import { NO_ANSWER, NO_STEPS, toRequest, TurnEvents } from './turn-events.ts';
import type { SessionEvent, ToolCallRequest } from './wire/events.ts';

const options = { totals: NO_STEPS, isFirst: true, isInteractive: true, leftCalls: new Map(), sessionId: 'ses_1' };

function recordsOf(steps: TurnStep[]): LogRecord[] {
  const projection = new Turn();
  const entries = steps.flatMap((step) => ('event' in step ? projection.feed(step.event) : []));
  return entries.map(({ record }) => record);
}

/** The calls that a client is to run, as far as the events alone show them. */
function advertised(events: SessionEvent[]): ToolCallRequest[] {
  const last = events.findLast(({ type }) => type === 'ActiveStateChangeEvent');
  return last?.type === 'ActiveStateChangeEvent' ? (last.data.pending_tool_calls ?? []) : [];
}

test.each([
  ['turns', randomTurn()],
  ['turns with sub-agents', randomThreads()],
  ['turns that wait', randomWaiting()],
])('%s: the events tell all that the state says', (_name, steps) => {
  fc.assert(
    fc.property(steps, (turn) => {
      const fold = new TurnEvents(options);
      const events: SessionEvent[] = [];
      const records = recordsOf(turn);
      for (const [i, record] of records.entries()) {
        const added = fold.feed(record);
        events.push(...added);
        // Until the end of the turn, after which nothing is waited for any more.
        if (record.kind !== 'turn.done') {
          const { forClient, waiting } = fold.view;
          expect(waiting.map(({ pending }) => callKey(pending)).toSorted()).toEqual(
            [...askedCalls(records.slice(0, i + 1)).keys()].toSorted(),
          );
          expect(advertised(events)).toEqual(forClient.map(({ call }) => toRequest(call)));
        }
        for (const { timestamp } of added) expect(timestamp).toBe(record.at);
      }
      const policies = events.filter(({ type, data }) => type === 'AgentEvent' && data.kind === 'policy_event');
      expect(fold.totals.steps).toBe(policies.length);
      const metrics = events.filter(({ type }) => type === 'MetricsUpdateEvent');
      const end = fold.view.done?.end;
      expect(metrics.length).toBe(end ? 1 : 0);
      if (end?.status !== 'done' || end.requiredActions.length > 0) return;
      if (!hasOutput(end)) {
        expect(events.at(-1)).toMatchObject({ type: 'AgentErrorEvent', data: { error: NO_ANSWER } });
        return;
      }
      expect(events.slice(-3)).toMatchObject([
        { type: 'AgentEvent', data: { kind: 'answer_event', answer: fold.answer?.value ?? '' } },
        { type: 'MetricsUpdateEvent' },
        { type: 'ActiveStateChangeEvent', data: { state: 'idle' } },
      ]);
      expect(resultsPerCall(events)).toEqual(callsOf(events).map(() => 1));
    }),
    { seed: SEED, numRuns: 200 },
  );
});

function callsOf(events: SessionEvent[]): ToolCallRequest[] {
  return events.flatMap(({ type, data }) =>
    type === 'AgentEvent' && data.kind === 'policy_event' ? data.tool_reqs : [],
  );
}

/** How many results each call of the root agent has. */
function resultsPerCall(events: SessionEvent[]): number[] {
  const ended = events.flatMap(({ type, data }) =>
    type === 'AgentEvent' && (data.kind === 'tool_result' || data.kind === 'error_event') ? [data.tool_req] : [],
  );
  return callsOf(events).map((call) => ended.filter((one) => one?.id === call.id).length);
}

test('a call that is decided between two turns gets its result in the second one', () => {
  const call = (id: string, name: string, to: string) => ({ id, name, arguments: '{}', route: { to } });
  const text = { threadId: 'main', content: '', refusal: '', reasoning: '' };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  const fed = (fold: TurnEvents, ...records: object[]) =>
    records.flatMap((record) => fold.feed({ at: '2026-11-22T08:00:00.000Z', ...record } as LogRecord));
  const [place, door] = [
    { threadId: 'main', toolCallId: 'a' },
    { threadId: 'main', toolCallId: 'b' },
  ];
  const first = new TurnEvents(options);
  fed(
    first,
    { kind: 'turn.created', input: [] },
    { kind: 'model.message', ...text, toolCalls: [call('a', 'refund', 'server'), call('b', 'door', 'client')] },
    { kind: 'tool.response_required', threadId: 'main', calls: [{ ...door, needs: 'response' }] },
    { kind: 'turn.done', end: { status: 'done', output: null, requiredActions: [{}] } },
  );
  expect(first.view.forClient).toMatchObject([{ call: { name: 'door' } }]);
  const second = new TurnEvents({ ...options, isFirst: false, leftCalls: first.view.leftCalls });
  const results = fed(
    second,
    { kind: 'turn.created', input: [{ type: 'user.tool_response', ...door, content: 'open' }] },
    { kind: 'tool.response', ...place, outcome: 'succeeded', content: 'refunded' },
  ).filter(({ type }) => type === 'AgentEvent');
  expect(results.map(({ data }) => data)).toMatchObject([
    { kind: 'tool_result', tool_req: { tool_name: 'door', id: 'b' }, result: 'open' },
    { kind: 'tool_result', tool_req: { tool_name: 'refund', id: 'a' }, result: 'refunded' },
  ]);
});
