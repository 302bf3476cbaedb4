import type { Approvers } from './records/calls.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { PendingCall } from './records/pending.ts';
import type { Caller } from './subject.ts';
import type { Answer, Answerer } from './turn-command.ts';

/** A call that waits, as far as it determines who may decide on it. */
interface DecidableCall extends Pick<PendingCall, 'policy' | 'requesters'> {
  isEscalated?: boolean | undefined;
}

/** Whether a caller may give this answer to a call: for running turns and ended ones, and for readers of the session and others. */
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

/** Whether the caller has asked for a call whose policy has others decide. */
export function isRequester({ policy, requesters = [] }: DecidableCall, { subject }: Caller): boolean {
  return policy?.excludeRequester === true && requesters.includes(subject.subjectId);
}

/** A call with further subjects that have asked for it, if its policy excludes them. */
export function withRequesters<C extends Pick<PendingCall, 'policy' | 'requesters'>>(
  call: C,
  authors: readonly string[],
): C {
  if (!call.policy?.excludeRequester || authors.length === 0) return call;
  return { ...call, requesters: [...new Set([...(call.requesters ?? []), ...authors])] };
}

/**
 * The id of the author of the newest user message among records of a chain of turns. An answer is no message, and a
 * conversation that a client keeps is its own. Undefined if the records have no message.
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

/** Whether a call exists for the caller: a stranger to the session knows of no others than those that it may decide. */
export function isShown(call: DecidableCall, caller: Caller & Pick<Answerer, 'isStranger'>): boolean {
  return !caller.isStranger || isNamed(call, caller);
}

/** By the subject's id, which the key or the provider guarantees: the slug is a name that the bearer may choose. */
function isAmong({ subjects, roles }: Approvers, caller: Caller): boolean {
  return subjects.includes(caller.subject.subjectId) || caller.roles.some((role) => roles.includes(role));
}
