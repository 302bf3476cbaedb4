import { expect } from 'vitest';
import { callsOf, keyIn, keyOf } from './called.ts';
import type { Log, Stored } from './check.ts';
import { NEED_APPROVAL, type Effect } from './ledger.ts';
import { approval } from './plan.ts';
import type { RecordedRun } from './recorded-run.ts';
import type { SentDecision, SentInput } from './sent.ts';
import type { World } from './world.ts';

/** 5, and what was decided and answered in turns that wait. */
export function checkDecisions({ recorder, ledger }: World, sessionId: string, turns: Stored[]): void {
  const inputs = recorder.inputs.filter((one) => one.sessionId === sessionId && one.outcome === 'accepted');
  const decisions = recorder.decisions.filter((one) => one.sessionId === sessionId);
  const responses = recorder.responses.filter((one) => one.sessionId === sessionId && one.response === 200);
  checkVotes(decisions, turns);
  for (const one of turns) checkDeadlines(one);
  checkAnswers([...inputs.flatMap(({ input }) => input), ...responses.map(({ item }) => item)], turns);
  checkApprovals(ledger.effects, [...inputs, ...decisions.map(asInput)], turns);
}

/** 5, and what a run remembers. */
export function checkRunDecisions(run: RecordedRun, log: Log, effects: Effect[]): void {
  checkDeadlines(log);
  const ids = new Map(callsOf([log]).map((call) => [call.operation, call]));
  for (const { operation, tool, at } of effects) {
    const call = ids.get(operation);
    if (!call || !NEED_APPROVAL.has(tool)) continue;
    const allows = run.decisions.filter((one) => one.status === 'allow' && one.at < at);
    const isAllowed = allows.some(({ toolCallId, remember }) => toolCallId === call.id || remember);
    expect(isAllowed, `${tool} was allowed, which ran as ${operation}`).toBe(true);
  }
  let remembered: string | undefined;
  for (const event of log.events) {
    if (event.type === 'tool.decided') {
      const sent = run.decisions.filter(({ toolCallId }) => toolCallId === event.tool_call_id);
      const isSent = sent.some(
        ({ status, remember }) => status === event.decision && remember === (event.remembered ?? false),
      );
      const isKnown = event.remembered === true && remembered === event.decision;
      expect(isSent || isKnown || !event.by, `the decision on ${event.tool_call_id} in the log`).toBe(true);
      if (event.remembered) remembered ??= event.decision;
    }
    // All of these agents ask about one tool.
    if (event.type === 'tool.approval_required') {
      expect(remembered, `what is remembered when run ${run.id} asks`).toBeUndefined();
    }
  }
  const decided = log.events.flatMap((event) => (event.type === 'tool.decided' ? [event.tool_call_id] : []));
  for (const { toolCallId, response } of run.decisions) {
    if (response === 200) expect(decided, 'the calls that were decided').toContain(toolCallId);
  }
}

/** Each time limit of a policy applies once, and not before its time. An expiry is the last decision on a call. */
function checkDeadlines({ turn, events }: Log): void {
  const due = new Map<string, number>();
  const decided = new Set<string>();
  for (const event of events) {
    if (event.type === 'tool.approval_required') {
      for (const { id, policy } of event.tool_calls) {
        const key = `${event.thread_id} ${id}`;
        due.set(`expired ${key}`, Date.parse(policy?.expires_at ?? ''));
        due.set(`escalated ${key}`, Date.parse(policy?.escalates_at ?? ''));
      }
    }
    if (event.type !== 'tool.decided') continue;
    const what = `${event.decision} ${keyIn(event)}`;
    expect(decided, `what time had decided in ${turn.id} before ${what}`).not.toContain(`expired ${keyIn(event)}`);
    if (event.by) continue;
    expect(decided, `what time has decided in ${turn.id}`).not.toContain(what);
    expect(Date.parse(event.created_at), `when ${what}`).toBeGreaterThanOrEqual(due.get(what) ?? NaN);
    decided.add(what);
  }
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
      event.type === 'tool.decided' && event.by ? [`${keyIn(event)} ${event.decision} ${event.by.subject_id}`] : [],
    ),
  );
  expect(recorded, 'a subject votes once').toEqual([...new Set(recorded)]);
  // A rejected decision may be accepted later: the call has been escalated.
  const sent = Map.groupBy(decisions, ({ threadId = 'main', toolCallId, status, by }) => {
    return `${threadId} ${toolCallId} ${status} ${by.id}`;
  });
  for (const [vote, its] of sent) {
    const responses = its.map(({ response }) => response);
    if (responses.includes(undefined)) continue;
    expect(recorded.includes(vote), `${vote}, answered with ${responses.join()}`).toBe(responses.includes(200));
  }
}

/** An accepted answer of a client or a user is the result of its call, or part of it. */
function checkAnswers(items: Record<string, unknown>[], turns: Stored[]): void {
  const results = new Map(
    turns.flatMap(({ events }) =>
      events.flatMap((event) => (event.type === 'tool.response' ? [[keyIn(event), event] as const] : [])),
    ),
  );
  for (const { type, thread_id: thread, tool_call_id: id, content } of items) {
    if (type !== 'user.tool_response') continue;
    const key = `${String(thread)} ${String(id)}`;
    const result = results.get(key);
    if (result?.outcome === 'succeeded') expect(result.content, `the result of ${key}`).toContain(content);
  }
}

/** 5: a call that needs a decision has run after one for this very call. */
function checkApprovals(effects: Effect[], inputs: SentInput[], turns: Stored[]): void {
  const calls = new Set(callsOf(turns).map(({ operation }) => operation));
  const allowedAt = new Map<string, number>(
    inputs
      .filter(({ outcome }) => outcome === 'accepted')
      // A vote may be repeated later: the first one counts.
      .toSorted((a, b) => b.at - a.at)
      .flatMap(({ input, at }) => input.map((item) => ({ item, at })))
      .flatMap(({ item, at }) =>
        item['type'] === 'user.tool_approval' && (item['approval'] as { status: string }).status === 'allow'
          ? [[`${String(item['thread_id'])} ${String(item['tool_call_id'])}`, at] as const]
          : [],
      ),
  );
  for (const { operation, tool, at } of effects) {
    if (!NEED_APPROVAL.has(tool) || !calls.has(operation)) continue;
    const allowed = allowedAt.get(keyOf(operation));
    expect(allowed, `when ${tool} was allowed, which ran as ${operation}`).toBeDefined();
    expect(allowed, `when ${tool} was allowed, which ran as ${operation}`).toBeLessThan(at);
  }
}
