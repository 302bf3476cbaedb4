import { answerableAt, callKey, callName } from './tool-records.ts';
import type { ApprovalPolicy } from './records/calls.ts';
import type { InputItem } from './records/input.ts';
import type { PendingCall } from './records/pending.ts';
import type { Answer } from './turn-command.ts';

/** Why a session or a turn refuses a command; each is an error code of the API. */
export const REFUSAL_CODES = [
  'forbidden',
  'session_not_found',
  'session_closed',
  'request_expired',
  'turn_not_found',
  'turn_running',
  'queue_full',
  'actions_pending',
  'call_not_pending',
  'call_answered_twice',
  'calls_unanswered',
  'nothing_pending',
  'nothing_running',
  'too_many_messages',
  'budget_exceeded',
  'already_decided',
  'edit_not_allowed',
  'remember_not_allowed',
  'not_an_approver',
] as const;

export interface Refusal {
  code: (typeof REFUSAL_CODES)[number];
  message: string;
  /** The part of the request that is at fault. */
  param?: string;
}

/**
 * Checks whether `input` can follow a turn with `pending` calls: messages only if none is pending, answers only to
 * pending calls, and then to all of them. Calls that wait for something else allow any input. Undefined if it can.
 */
export function refuseInput(input: InputItem[], pending: PendingCall[], now: number): Refusal | undefined {
  const answerable = answerableAt(pending, now);
  const waiting = new Map(answerable.map((call) => [callKey(call), call]));
  const answered = new Set<string>();
  for (const item of input) {
    if (item.type === 'user.message') continue;
    const key = callKey(item);
    const refusal = refuseInputAnswer(item, waiting.get(key), answered.has(key));
    if (refusal) return refusal;
    answered.add(key);
  }
  const unanswered = answerable.filter((call) => !answered.has(callKey(call)));
  if (unanswered.length === 0) return undefined;
  const ids = unanswered.map(({ toolCallId }) => toolCallId).join(', ');
  if (answered.size > 0) {
    return {
      code: 'calls_unanswered',
      message: `these pending tool calls must be answered in the same turn: ${ids}`,
    };
  }
  return {
    code: 'actions_pending',
    message: `these tool calls of the previous turn must be answered first: ${ids}`,
  };
}

/** The first refusal that `refuse` returns, with its answer's path. `isAnswered`: an earlier answer has its call. */
export function firstRefusal(
  answers: readonly Answer[],
  refuse: (answer: Answer, isAnswered: boolean) => Refusal | undefined,
): Refusal | undefined {
  const answered = new Set<string>();
  for (const [i, answer] of answers.entries()) {
    const key = callKey(answer);
    const refusal = refuse(answer, answered.has(key));
    if (refusal) return { ...refusal, param: `input.${i}` };
    answered.add(key);
  }
  return undefined;
}

/** Why a turn that follows the one with a pending call cannot begin with this answer to it. */
export function refuseInputAnswer(
  item: Answer,
  call: PendingCall | undefined,
  isAnswered: boolean,
): Refusal | undefined {
  const what = callName(item);
  if (!call) return { code: 'call_not_pending', message: `${what} is not pending on the previous turn` };
  if (isAnswered) return { code: 'call_answered_twice', message: `${what} is answered twice` };
  const refusal = refuseAnswer(call, item);
  if (refusal) return refusal;
  if (item.type !== 'user.tool_approval') return undefined;
  const { quorum = 1, approvers, excludeRequester } = call.policy ?? {};
  // An answer with an author was sent on its own, and its author may decide: see `answerEndedTurn`.
  if (excludeRequester && !item.by) {
    return {
      code: 'not_an_approver',
      message: `${what} has a policy that excludes those who have asked for it: decide it by itself, as an action`,
    };
  }
  if (item.approval.status === 'deny' || (quorum === 1 && (approvers === undefined || item.by))) return undefined;
  return {
    code: 'not_an_approver',
    message: `${what} can only be denied here: its policy needs votes, which requires pause: "wait" in the agent`,
  };
}

/** Why no caller can answer a pending call like this. */
export function refuseAnswer(call: PendingCall, answer: Answer): Refusal | undefined {
  const { needs, policy, unknownOutcome } = call;
  const what = callName(call);
  const expected = needs === 'approval' ? 'user.tool_approval' : 'user.tool_response';
  if (answer.type !== expected && unknownOutcome === undefined) {
    return { code: 'call_not_pending', message: `${what} waits for a ${expected}, not for a ${answer.type}` };
  }
  const isEdit = answer.type === 'user.tool_approval' && answer.approval.status === 'allow' && answer.approval.edited;
  if (!isEdit || policy?.mayEditArguments !== false) return undefined;
  const message =
    unknownOutcome === undefined
      ? `the policy of ${what} does not allow that its arguments are changed`
      : `the outcome of ${what} is unknown: it can only run again as it ran before`;
  return { code: 'edit_not_allowed', message };
}

/** Whether a policy restricts who allows a call, beyond one subject with the right to decide. */
export function namesDeciders(policy: ApprovalPolicy | undefined): boolean {
  return (
    policy !== undefined && (policy.quorum > 1 || policy.approvers !== undefined || policy.excludeRequester === true)
  );
}

const MAX_LENGTH = 50;

/** The default title of a session: the beginning of the first text of its first turn. */
export function titleOf(input: InputItem[]): string | null {
  const texts = input.flatMap((item) => {
    if (item.type !== 'user.message') return [];
    if (typeof item.content === 'string') return [item.content];
    return item.content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  });
  const first = texts.find((text) => text.trim() !== '')?.trimStart() ?? '';
  // Cut at code points, not UTF-16 units; PostgreSQL's text cannot hold NUL.
  const start = first
    .slice(0, 2 * MAX_LENGTH)
    .toWellFormed()
    .replaceAll('\0', '');
  return Array.from(start).slice(0, MAX_LENGTH).join('').trim() || null;
}
