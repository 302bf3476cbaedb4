import type { Approvers } from './records/calls.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { PendingCall } from './records/pending.ts';
import type { Caller } from './subject.ts';
import type { Answer, Answerer } from './turn-command.ts';

/** The fields of a waiting call that determine who may decide on it. */
interface DecidableCall extends Pick<PendingCall, 'policy' | 'requesters'> {
  isEscalated?: boolean | undefined;
}

/** Whether a caller may give this answer to a call of a running or an ended turn. The caller may be a stranger. */
export function mayAnswer(call: DecidableCall, answer: Answer, caller: Answerer): boolean {
  if (answer.type === 'user.tool_response') return caller.mayRespond;
  if (isRequester(call, caller)) return false;
  return isNamed(call, caller) || (call.policy?.approvers === undefined && caller.mayDecide);
}

/** Whether the policy of a call names the caller, by its subject or a role, as one that may decide now. */
export function isNamed(call: DecidableCall, caller: Caller): boolean {
  if (isRequester(call, caller)) return false;
  const { approvers, escalate } = call.policy ?? {};
  const isApprover = approvers !== undefined && isAmong(approvers, caller);
  return isApprover || (call.isEscalated === true && escalate !== undefined && isAmong(escalate.to, caller));
}

/** Whether the caller is a requester of a call whose policy excludes requesters from the decision. */
export function isRequester({ policy, requesters = [] }: DecidableCall, { subject }: Caller): boolean {
  return policy?.excludeRequester === true && requesters.includes(subject.subjectId);
}

/** A call with further requesters, if its policy excludes them. */
export function withRequesters<C extends Pick<PendingCall, 'policy' | 'requesters'>>(
  call: C,
  authors: readonly string[],
): C {
  if (!call.policy?.excludeRequester || authors.length === 0) return call;
  return { ...call, requesters: [...new Set([...(call.requesters ?? []), ...authors])] };
}

/**
 * The id of the author of the newest user message among records of a chain of turns. Answers to calls do not count; a
 * conversation that a client keeps counts as the creator's message. Undefined if the records have no message.
 */
export function newestAuthor(records: readonly UnsequencedRecord[]): string | undefined {
  const newest = records.findLast((record) => record.kind === 'user.steered' || hasMessage(record));
  if (newest?.kind === 'user.steered') return newest.by.subjectId;
  return newest?.kind === 'turn.created' ? newest.createdBy.subjectId : undefined;
}

function hasMessage(record: UnsequencedRecord): boolean {
  if (record.kind !== 'turn.created') return false;
  return record.conversation !== undefined || record.input.some(({ type }) => type === 'user.message');
}

/** Whether the caller may see a call: a stranger to the session sees only the calls that it may decide on. */
export function isShown(call: DecidableCall, caller: Caller & Pick<Answerer, 'isStranger'>): boolean {
  return !caller.isStranger || isNamed(call, caller);
}

/** Compares the subject's id, which the key or the provider guarantees: the bearer may choose its slug. */
function isAmong({ subjects, roles }: Approvers, caller: Caller): boolean {
  return subjects.includes(caller.subject.subjectId) || caller.roles.some((role) => roles.includes(role));
}
