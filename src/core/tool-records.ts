import type { CallToolInput, CallToolResult } from './history.ts';
import type { ClientResult } from './turn-command.ts';
import type { ApprovalPolicy } from './records/calls.ts';
import type { ModelMessage } from './records/message.ts';
import type { ActionRequired, PendingCall } from './records/pending.ts';
import type { ToolOutcome, ToolResponse } from './records/results.ts';
import { ROOT_THREAD } from './records/threads.ts';
import { pick } from './pick.ts';

type Unsuccessful = Exclude<ToolOutcome, 'succeeded'>;

/** Identifies a tool call within its turn, together with its thread, since providers number calls per conversation. */
export interface CallKey {
  threadId: string;
  toolCallId: string;
}

export function callKey(call: CallKey): string {
  return `${call.threadId} ${call.toolCallId}`;
}

/**
 * The operation id of a call: `<turn>/<call>`, or `<run>/<call>`. Calls are numbered per conversation; threads of
 * sub-agents have their own.
 */
export function operationIdOf(
  { turnId, isRun }: { turnId: string; isRun?: true | undefined },
  { threadId, toolCallId }: CallKey,
): string {
  const owner = isRun ? turnId.replace(/^turn_/, 'run_') : turnId;
  return threadId === ROOT_THREAD ? `${owner}/${toolCallId}` : `${owner}/${threadId}/${toolCallId}`;
}

/** The text for the model and the reader if a call has an outcome but no text of its own. */
export function outcomeText(outcome: Exclude<Unsuccessful, 'denied'>): string {
  switch (outcome) {
    case 'cancelled':
      return 'This tool call was not executed: the turn ended before it could start.';
    case 'expired':
      return 'This tool call was not executed: it was not approved in time.';
    case 'unknown_outcome':
      return 'The outcome of this tool call is unknown: it was started, but no result arrived. It may or may not have taken effect; check before you repeat it.';
    case 'failed':
      return 'The tool call failed: the tool did not answer.';
  }
}

/** The text of a result for the model and the reader. */
export function responseText({ outcome, content }: Pick<ToolResponse, 'outcome' | 'content'>): string {
  if (outcome !== 'denied') return content;
  return content ? `The user denied this tool call. Reason: ${content}` : 'The user denied this tool call.';
}

/** Whether a call was to run, and has no result of its tool: see `NoResult`. */
export function hasNoResult({
  outcome,
  noResult,
  isGiven,
}: Pick<ToolResponse, 'outcome' | 'noResult' | 'isGiven'>): boolean {
  return noResult !== undefined || (outcome === 'unknown_outcome' && !isGiven);
}

/** The result of a call that has none of its own. */
export function unsuccessfulResponse(
  { threadId, toolCallId, edited }: CallKey & Pick<PendingCall, 'edited'>,
  outcome: Exclude<Unsuccessful, 'denied'>,
  at: string,
  content = outcomeText(outcome),
): Omit<ToolResponse, 'id'> {
  const executed = edited && { arguments: edited.arguments };
  return { kind: 'tool.response', at, threadId, toolCallId, outcome, ...executed, content };
}

/**
 * The result of a call that a person has denied. The content is only the reason: it may be a reference, which cannot be
 * put into a sentence. A call whose outcome is unknown is not run again: that remains its outcome.
 */
export function denial(call: PendingCall, reason: string | undefined, at: string): Omit<ToolResponse, 'id'> {
  const { threadId, toolCallId, unknownOutcome } = call;
  if (unknownOutcome !== undefined) return unsuccessfulResponse(call, 'unknown_outcome', at, unknownOutcome);
  return { kind: 'tool.response', at, threadId, toolCallId, outcome: 'denied', content: reason ?? '' };
}

/** The result that a client has given, or the error that its tool has thrown. */
export function clientResponse(
  { threadId, toolCallId, edited }: CallKey & Pick<PendingCall, 'edited'>,
  { isError, error, hash, ...result }: ClientResult,
  { at, by }: Pick<ToolResponse, 'at' | 'by'>,
): Omit<ToolResponse, 'id'> {
  return {
    kind: 'tool.response',
    at,
    threadId,
    toolCallId,
    outcome: isError || error !== undefined ? 'failed' : 'succeeded',
    ...(edited && { arguments: edited.arguments }),
    ...pick(result, 'content', 'files', 'fullText'),
    ...(by && { by }),
    ...(error !== undefined && { noResult: 'client', error }),
    ...(hash !== undefined && { answerHash: hash }),
  };
}

/** A call of a message that the server or the client is to run; `needs` is what it first waits for, if it does. */
type OpenCall = Omit<PendingCall, 'needs'> & Partial<Pick<PendingCall, 'needs'>>;

/** The calls of a message that the server or the client is to run. `stamp` is that of the result with the message. */
export function openCallsOf(message: ModelMessage, { turnId, stamp }: { turnId: string; stamp: string }): OpenCall[] {
  return message.toolCalls.flatMap(({ id: toolCallId, route, info, arguments: args }, index): OpenCall[] => {
    const position = { turnId, messageId: message.id, stamp, index };
    const call = { threadId: message.threadId, toolCallId };
    switch (route.to) {
      case 'answered':
      case 'thread':
        return [];
      case 'client':
        return [{ ...call, needs: 'response', source: position }];
      case 'session':
        // Creating the session again changes nothing.
        return [{ ...call, source: { ...position, run: { effect: 'retry', callHash: route.callHash } } }];
      case 'server': {
        const { approval, action } = route;
        const run = pick(route, 'effect', 'callHash', 'order', 'inSandbox', 'startsTask', 'hasBegun');
        const source = { ...position, run };
        if (!approval) return [{ ...call, source }];
        const asked = action && { action: { ...action, info, arguments: args } };
        return [{ ...call, needs: 'approval', source, ...pick(route, 'policy', 'requesters'), ...asked }];
      }
    }
  });
}

/** The name of a call in messages to people. */
export function callName({ threadId, toolCallId }: CallKey): string {
  return `tool call ${toolCallId} of thread ${threadId}`;
}

/** Why the approval of a call is requested again, for the people who decide. */
export const ASKED_AGAIN =
  'This call was approved before and has not run: the connection to its server was replaced since earlier calls of the ' +
  'conversation, and what the server held for them, such as open pages, processes or a login, is lost. Decide again ' +
  'whether it is to run; edited arguments have to be sent again.';

/**
 * How a call that a person has approved is asked about once more if its connection was replaced. Undefined if no person
 * has approved it, or if it was asked about again before: it then runs, since its approvers know of the loss.
 */
export function onReplacedOf(
  call: Partial<Pick<PendingCall, 'needs' | 'policy' | 'requesters' | 'isAskedAgain' | 'onReplaced'>>,
): CallToolInput['onReplaced'] {
  const { needs, isAskedAgain, onReplaced } = call;
  return needs !== 'approval' || isAskedAgain ? onReplaced : pick(call, 'policy', 'requesters');
}

/**
 * A call that waits behind others of its server until a later Temporal run or a later turn. An earlier approval keeps
 * its effect: the call is asked about once more if its connection is replaced while it waits.
 */
export function heldCall<C extends Omit<PendingCall, 'needs'> & Parameters<typeof onReplacedOf>[0]>(
  call: C,
): C & { needs: 'order' } {
  const onReplaced = onReplacedOf(call);
  return { ...call, needs: 'order', ...(onReplaced && { onReplaced }) };
}

/** What a call waits for after its activity has ended without a result; undefined if it has one. */
export function waitingAfter(
  call: Pick<CallToolInput, 'threadId' | 'toolCallId' | 'source' | 'edited' | 'onUnknown' | 'onReplaced'>,
  end: Pick<CallToolResult, 'elicitation' | 'unknownOutcome' | 'isReplaced'> | 'lost',
): PendingCall | undefined {
  const { threadId, toolCallId, source, onUnknown, onReplaced } = call;
  const known: Exclude<typeof end, 'lost'> = end === 'lost' ? { unknownOutcome: outcomeText('unknown_outcome') } : end;
  const { elicitation, unknownOutcome, isReplaced } = known;
  if (isReplaced) return { threadId, toolCallId, needs: 'approval', source, ...onReplaced, isAskedAgain: true };
  const begun = { threadId, toolCallId, needs: 'response' as const, source, ...pick(call, 'edited') };
  // It has begun, and waits for the user's answer to its server.
  if (elicitation) return { ...begun, elicitation };
  if (!onUnknown || unknownOutcome === undefined) return undefined;
  // Running it again requires the same votes as before, and has no time limit.
  return { ...begun, policy: votesOf(onUnknown.policy), ...pick(onUnknown, 'requesters'), unknownOutcome };
}

/** The votes that are required to run a call again, as a policy without a time limit. */
export function votesOf(policy: Omit<ApprovalPolicy, 'onExpiry'> = { quorum: 1 }): ApprovalPolicy {
  const votes = pick(policy, 'quorum', 'approvers', 'excludeRequester');
  return { ...votes, onExpiry: 'deny', mayEditArguments: false };
}

/** Whether a pending call waits for an answer of an input. */
export function isAnswerable({ needs }: Pick<PendingCall, 'needs'>): boolean {
  return needs === 'approval' || needs === 'response';
}

/** Whether code no longer waits for a decision on a call. @param now milliseconds since 1970 */
export function isOverdue({ action }: Partial<Pick<PendingCall, 'action'>>, now: number): boolean {
  return action?.expiresAt !== undefined && action.expiresAt <= now;
}

/** The pending calls that wait for answers of an input. @param now milliseconds since 1970 */
export function answerableAt(pending: readonly PendingCall[], now: number): PendingCall[] {
  return pending.filter((call) => isAnswerable(call) && !isOverdue(call, now));
}

/** Whether a pending call may have taken effect. */
export function hasBegun({ elicitation, unknownOutcome }: Partial<PendingCall>): boolean {
  return elicitation !== undefined || unknownOutcome !== undefined;
}

/** Whether a call waits because of an attempt to run it, not because of its message. */
export function hasBeenAsked({ elicitation, unknownOutcome, isAskedAgain }: Partial<PendingCall>): boolean {
  return elicitation !== undefined || unknownOutcome !== undefined || isAskedAgain === true;
}

/** The requests for answers to pending calls: one per thread and need, approvals first. */
export function actionsRequired(pending: PendingCall[], at: string): Omit<ActionRequired, 'id'>[] {
  const groups = new Map<string, Omit<ActionRequired, 'id'>>();
  for (const needs of ['approval', 'response'] as const) {
    for (const call of pending) {
      if (call.needs !== needs) continue;
      const key = `${needs} ${call.threadId}`;
      const kind = needs === 'approval' ? 'tool.approval_required' : 'tool.response_required';
      const group = groups.get(key) ?? { kind, at, threadId: call.threadId, calls: [] };
      group.calls.push({ ...call, needs });
      groups.set(key, group);
    }
  }
  return [...groups.values()];
}
