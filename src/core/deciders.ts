import type { Approvers, PendingCall } from './records.ts';
import type { Caller } from './subject.ts';
import type { Answer, Answerer } from './turn-command.ts';

/** A call that waits, as far as it determines who may decide on it. */
export interface DecidableCall {
  pending: Pick<PendingCall, 'policy'>;
  isEscalated?: boolean | undefined;
}

/** Whether a caller may give this answer to a call: for running turns and ended ones, and for readers of the session and others. */
export function mayAnswer(call: DecidableCall, answer: Answer, caller: Answerer): boolean {
  if (answer.type === 'user.tool_response') return caller.mayRespond;
  const { policy } = call.pending;
  return isNamed(call, caller) || (policy?.approvers === undefined && caller.mayDecide);
}

/** Whether the policy of a call names the caller, by its subject or a role, as one that may decide now. */
export function isNamed({ pending: { policy }, isEscalated }: DecidableCall, caller: Caller): boolean {
  const { approvers, escalate } = policy ?? {};
  const isApprover = approvers !== undefined && isAmong(approvers, caller);
  return isApprover || (isEscalated === true && escalate !== undefined && isAmong(escalate.to, caller));
}

/** Whether a call exists for the caller: a stranger to the session knows of no others than those that it may decide. */
export function isShown(call: DecidableCall, caller: Caller & Pick<Answerer, 'isStranger'>): boolean {
  return !caller.isStranger || isNamed(call, caller);
}

/** By the subject's id, which the key or the provider guarantees: the slug is a name that the bearer may choose. */
function isAmong({ subjects, roles }: Approvers, caller: Caller): boolean {
  return subjects.includes(caller.subject.subjectId) || caller.roles.some((role) => roles.includes(role));
}
