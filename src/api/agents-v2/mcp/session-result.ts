import { z } from 'zod';
import { ASKED_AGAIN } from '../../../core/tool-records.ts';
import type { WaitingCall } from '../../../core/turn-view.ts';
import { pendingToolCalls, stateNow, type ReadSession } from '../read-session.ts';
import { toUuid } from '../session-ids.ts';
import { waitingRequest } from '../turn-events.ts';
import { toolCallRequest, type ToolCallRequest } from '../wire/events.ts';
import { ERROR_CODES, SESSION_STATUSES, type SessionStatusName } from '../wire/session.ts';

/** The longest answer in a result, in characters: it goes into the context of the model that called the tool. */
const MAX_ANSWER = 100_000;
const MAX_CALLS = 20_000;

const needs = z
  .enum(['approval', 'answer', 'outcome'])
  .describe('answer: to a question of its server; outcome: whether it has happened, since contact was lost');

const reason = z.string().optional().describe('set if a call that was approved is asked about once more: why');

/** A session as the tools return it. */
export const sessionResult = z.object({
  session_id: z.string(),
  status: z.enum(SESSION_STATUSES),
  answer: z.unknown().describe('the last answer: a text, or a value of the answer format of the agent; null: none'),
  is_truncated: z.boolean().describe('the answer or the arguments of the calls are too long and were cut'),
  error: z.string().nullable(),
  error_code: z.enum(ERROR_CODES).nullable(),
  paused_for: z.array(z.string()).describe('why it is paused: action, sign_in, budget: a person decides; requested'),
  pending_tool_calls: z
    .array(toolCallRequest)
    .describe('calls of tools that the client of the session runs, which wait for their results'),
  pending_decisions: z
    .array(toolCallRequest.extend({ needs, reason }))
    .describe('calls of tools that wait for a person, who decides in the inbox of the server'),
  session_path: z.string().describe('the path of the session in the Agents API v2 of this server'),
  next: z.string().describe('what can be done next'),
});

export type SessionResult = z.infer<typeof sessionResult>;

export function toSessionResult(read: ReadSession): SessionResult {
  const { session, view } = read;
  const { status, error, errorCode } = stateNow(read);
  const path = `/api/v2/sessions/${toUuid(session.id)}`;
  const { answer, isCut } = boundedAnswer(view.answer?.value ?? null);
  const calls = boundedCalls(pendingToolCalls(view));
  const undecided = boundedCalls((view.turn?.forPeople ?? []).map(toDecision));
  const isTruncated = isCut || calls.isCut || undecided.isCut;
  return {
    session_id: toUuid(session.id),
    status,
    answer,
    is_truncated: isTruncated,
    error,
    error_code: errorCode,
    paused_for: status === 'paused' ? [...(view.turn?.pauses.keys() ?? [])] : [],
    pending_tool_calls: calls.calls,
    pending_decisions: undecided.calls,
    session_path: path,
    next: nextStep(status, path) + (isTruncated ? ` Everything that was cut is in GET ${path}.` : ''),
  };
}

function toDecision(waiting: WaitingCall) {
  const { unknownOutcome, elicitation, isAskedAgain } = waiting.pending;
  const needs = unknownOutcome !== undefined ? 'outcome' : elicitation !== undefined ? 'answer' : 'approval';
  return { ...waitingRequest(waiting), needs, ...(isAskedAgain && { reason: ASKED_AGAIN }) } as const;
}

function nextStep(status: SessionStatusName, path: string): string {
  switch (status) {
    case 'queued':
    case 'pending':
    case 'running':
      return 'It is still working, whether or not a client waits: call wait_for_session.';
    case 'paused':
      return `It waits for a person, or for POST ${path}/resume. Call wait_for_session later.`;
    case 'awaiting_tool_results':
      return `It waits for its client: POST ${path}/tool_results, then call wait_for_session.`;
    case 'idle':
    case 'completed':
    case 'failed':
    case 'timed_out':
    case 'interrupted':
      return 'Nothing follows by itself. send_message continues it, with all that was said.';
  }
}

/** The answer, or its beginning if it is long: that of its JSON if it is not a text. */
function boundedAnswer(answer: unknown): { answer: unknown; isCut: boolean } {
  const text = typeof answer === 'string' ? answer : JSON.stringify(answer);
  if (text.length <= MAX_ANSWER) return { answer, isCut: false };
  return { answer: text.slice(0, MAX_ANSWER).toWellFormed(), isCut: true };
}

function boundedCalls<T extends ToolCallRequest>(calls: T[]): { calls: T[]; isCut: boolean } {
  let left = MAX_CALLS;
  const fitting = calls.filter((call) => (left -= JSON.stringify(call).length) >= 0);
  return { calls: fitting, isCut: fitting.length < calls.length };
}
