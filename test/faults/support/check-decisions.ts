import { expect } from 'vitest';
import { callOf, callsOf } from './called.ts';
import type { Stored } from './check.ts';
import { NEED_APPROVAL, type Effect } from './ledger.ts';
import { approval } from './plan.ts';
import type { SentDecision, SentInput } from './sent.ts';
import type { World } from './world.ts';

/** 5, and what was decided and answered in turns that wait. */
export function checkDecisions({ recorder, ledger }: World, sessionId: string, turns: Stored[]): void {
  const inputs = recorder.inputs.filter((one) => one.sessionId === sessionId && one.outcome === 'accepted');
  const decisions = recorder.decisions.filter((one) => one.sessionId === sessionId);
  const responses = recorder.responses.filter((one) => one.sessionId === sessionId && one.response === 200);
  checkVotes(decisions, turns);
  checkAnswers([...inputs.flatMap(({ input }) => input), ...responses.map(({ item }) => item)], turns);
  checkApprovals(ledger.effects, [...inputs, ...decisions.map(asInput)], turns);
}

/** A decision in a turn that waits, in the form of an input. One without a response may have been accepted. */
function asInput({ sessionId, toolCallId, threadId, status, at, response = 200 }: SentDecision): SentInput {
  const outcome = response === 200 ? 'accepted' : 'refused';
  return { sessionId, input: [approval(status, toolCallId, { threadId })], outcome, at };
}

/** A decision that was acknowledged is in the log, once, and one that was rejected is not. */
function checkVotes(decisions: SentDecision[], turns: Stored[]): void {
  const recorded = turns.flatMap(({ events }) =>
    events.flatMap((event) =>
      event.type === 'tool.decided' && event.by
        ? [`${event.tool_call_id} ${event.decision} ${event.by.subject_id}`]
        : [],
    ),
  );
  expect(recorded, 'a subject votes once').toEqual([...new Set(recorded)]);
  for (const { toolCallId, status, by, response } of decisions) {
    if (response === undefined) continue;
    const isRecorded = recorded.includes(`${toolCallId} ${status} ${by.id}`);
    expect(isRecorded, `${by.id}: ${status} ${toolCallId}, answered with ${response}`).toBe(response === 200);
  }
}

/** What a client or a user has answered, and was accepted, is the result of its call, or part of it. */
function checkAnswers(items: Record<string, unknown>[], turns: Stored[]): void {
  const results = new Map(
    turns.flatMap(({ events }) =>
      events.flatMap((event) => (event.type === 'tool.response' ? [[event.tool_call_id, event] as const] : [])),
    ),
  );
  for (const { type, tool_call_id: id, content } of items) {
    if (type !== 'user.tool_response') continue;
    const result = results.get(String(id));
    if (result?.outcome === 'succeeded') expect(result.content, `the result of ${String(id)}`).toContain(content);
  }
}

/** 5: a call that needs a decision has run after one for this very call. */
function checkApprovals(effects: Effect[], inputs: SentInput[], turns: Stored[]): void {
  const calls = new Set(callsOf(turns).map(({ operation }) => operation));
  const allowedAt = new Map(
    inputs
      .filter(({ outcome }) => outcome === 'accepted')
      // A vote may be repeated later: the first one counts.
      .toSorted((a, b) => b.at - a.at)
      .flatMap(({ input, at }) => input.map((item) => ({ item, at })))
      .flatMap(({ item, at }) =>
        item['type'] === 'user.tool_approval' && (item['approval'] as { status: string }).status === 'allow'
          ? [[String(item['tool_call_id']), at] as const]
          : [],
      ),
  );
  for (const { operation, tool, at } of effects) {
    if (!NEED_APPROVAL.has(tool) || !calls.has(operation)) continue;
    const allowed = allowedAt.get(callOf(operation));
    expect(allowed, `when ${tool} was allowed, which ran as ${operation}`).toBeDefined();
    expect(allowed, `when ${tool} was allowed, which ran as ${operation}`).toBeLessThan(at);
  }
}
