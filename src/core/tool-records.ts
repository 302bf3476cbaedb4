import {
  ROOT_THREAD,
  type ActionRequired,
  type CallSource,
  type ModelMessage,
  type PendingCall,
  type PendingElicitation,
  type ToolOutcome,
  type ToolResponse,
} from './records.ts';

type Unsuccessful = Exclude<ToolOutcome, 'succeeded'>;

/** Identifies a tool call within its turn, together with its thread, since providers number calls per conversation. */
export interface CallKey {
  threadId: string;
  toolCallId: string;
}

export function callKey(call: CallKey): string {
  return `${call.threadId} ${call.toolCallId}`;
}

/** The operation id of a call. Calls are numbered per conversation, and the threads of sub-agents have their own. */
export function operationIdOf(turnId: string, { threadId, toolCallId }: CallKey): string {
  return threadId === ROOT_THREAD ? `${turnId}/${toolCallId}` : `${turnId}/${threadId}/${toolCallId}`;
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

/** The result of a call that has none of its own. */
export function toolResponse(
  { threadId, toolCallId, edited }: CallKey & Pick<PendingCall, 'edited'>,
  outcome: Exclude<Unsuccessful, 'denied'>,
  at: string,
  content = outcomeText(outcome),
): Omit<ToolResponse, 'id'> {
  const executed = edited && { arguments: edited.arguments };
  return { kind: 'tool.response', at, threadId, toolCallId, outcome, ...executed, content };
}

/** The content is the bare reason: here it may be a reference, which cannot be put into a sentence. */
export function denial(
  { threadId, toolCallId }: CallKey,
  reason: string | undefined,
  at: string,
): Omit<ToolResponse, 'id'> {
  return { kind: 'tool.response', at, threadId, toolCallId, outcome: 'denied', content: reason ?? '' };
}

/** A call of a message that the server or the client runs; `pending` is set if it first waits for a person or the client. */
export interface OpenCall {
  toolCallId: string;
  source: CallSource;
  pending?: PendingCall;
}

/** The calls of a message that the server or the client is to run. `stamp` is that of the result with the message. */
export function openCallsOf(message: ModelMessage, { turnId, stamp }: { turnId: string; stamp: string }): OpenCall[] {
  return message.toolCalls.flatMap(({ id: toolCallId, route }, index): OpenCall[] => {
    const place = { turnId, messageId: message.id, stamp, index };
    const call = { threadId: message.threadId, toolCallId };
    switch (route.to) {
      case 'answered':
      case 'thread':
        return [];
      case 'client':
        return [{ toolCallId, source: place, pending: { ...call, needs: 'response', source: place } }];
      case 'server': {
        const { effect, callHash, approval, policy } = route;
        const source = { ...place, run: { effect, callHash } };
        if (!approval) return [{ toolCallId, source }];
        return [{ toolCallId, source, pending: { ...call, needs: 'approval', source, ...(policy && { policy }) } }];
      }
    }
  });
}

/** A call that has begun, and waits for the user's answer to its server. */
export function askingCall(
  { threadId, toolCallId, source, edited }: Pick<PendingCall, 'threadId' | 'toolCallId' | 'source' | 'edited'>,
  elicitation: PendingElicitation,
): PendingCall {
  return { threadId, toolCallId, needs: 'response', source, ...(edited && { edited }), elicitation };
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
