import { expect } from 'vitest';
import type { SessionEvent, ToolCallRequest } from '../../../src/api/agents-v2/wire/events.ts';
import { withTimeout } from '../../../src/lib/timeout.ts';
import { isSettled, type RecordedEvents } from './recorded-events.ts';

/**
 * What a client of the Agents API v2 has received of a session, whatever was cut: each event once, in an order that all
 * processes and both routes agree on, as many as the state has, and one result for each call.
 */
export async function checkEvents(reader: RecordedEvents, timeoutMs: number): Promise<void> {
  const what = `session ${reader.sessionId}`;
  const events = await reader.drain();
  await withTimeout(timeoutMs, reader.reaches(events.length), `the reader of ${what} lacks events`);
  expect(reader.events, `the events of ${what}, as its reader has them`).toEqual(events);
  expect(await reader.drain(0, '&limit=7'), `the events of ${what} by small pages`).toEqual(events);
  expect(await reader.list(), `the events of ${what} by pages of a list`).toEqual(events);
  expect(reader.findings, `contradictions of ${what}`).toEqual([]);

  const status = await reader.status();
  const snapshot = await reader.changes(0, '&include_events=false');
  expect(snapshot, `the snapshot of ${what}`).toMatchObject({
    status: status.status,
    new_events: [],
    answer: answersIn(events).at(-1) ?? null,
    pending_tool_calls: status.pending_tool_calls,
  });
  const results = resultsIn(events);
  const calls = callsIn(events).map(({ id }) => id);
  if (isSettled(status)) {
    expect(status.pending_tool_calls).toEqual([]);
    expect(results.map(String).toSorted(), `the results of ${what}`).toEqual(calls.map(String).toSorted());
  } else {
    expect(results, `the results of ${what}`).toEqual([...new Set(results)]);
    expect(calls).toEqual(expect.arrayContaining(results));
  }
  if (status.status === 'awaiting_tool_results') {
    expect(status.pending_tool_calls, `what ${what} waits for`).toEqual(advertised(events));
  }
}

function callsIn(events: SessionEvent[]): ToolCallRequest[] {
  return events.flatMap(({ type, data }) =>
    type === 'AgentEvent' && data.kind === 'policy_event' ? data.tool_reqs : [],
  );
}

/** The ids of the calls that have results, one for each result. */
function resultsIn(events: SessionEvent[]): unknown[] {
  return events.flatMap(({ type, data }) =>
    type === 'AgentEvent' && (data.kind === 'tool_result' || data.kind === 'error_event') ? [data.tool_req?.id] : [],
  );
}

function answersIn(events: SessionEvent[]): unknown[] {
  return events.flatMap(({ type, data }) =>
    type === 'AgentEvent' && data.kind === 'answer_event' ? [data.answer] : [],
  );
}

/** The calls that the client is to run by the last event about it. */
function advertised(events: SessionEvent[]): ToolCallRequest[] {
  const last = events.findLast(({ type }) => type === 'ActiveStateChangeEvent');
  return last?.type === 'ActiveStateChangeEvent' ? (last.data.pending_tool_calls ?? []) : [];
}
