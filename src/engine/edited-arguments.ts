import type { SessionRow } from '../catalog/schema.ts';
import type { SessionOwner, ToolScope } from '../core/history.ts';
import type { ToolCall } from '../core/records/calls.ts';
import type { InputItem } from '../core/records/input.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { Approval, EditedArguments, PendingCall } from '../core/records/pending.ts';
import type { SubAgent } from '../core/records/threads.ts';
import { callKey } from '../core/tool-records.ts';
import { ownerOfCall, ownerOfThread } from '../core/work-owner.ts';
import { hashOf } from '../lib/hash.ts';
import type { Engine } from './engine.ts';
import { EngineError, type EngineErrorCode } from './errors.ts';

/** A call with edited arguments, and its agent. */
export interface EditedCall extends ToolScope {
  specHash: string;
  call: ToolCall;
}

export interface EditProblem {
  /** `unavailable`: the call cannot be checked now. */
  code: Extract<EngineErrorCode, 'invalid_arguments' | 'edit_not_allowed' | 'unavailable'>;
  message: string;
  /** The path in the arguments, as a JSON pointer. */
  pointer?: string;
}

/** Why a call must not run with edited arguments: see `src/tools/edit-problem.ts`. */
export type EditCheck = (call: EditedCall) => Promise<EditProblem | undefined>;

/** The session, the owner and the agents of pending calls. */
export interface EditContext {
  session: SessionRow;
  owner: SessionOwner;
  /** The agent of the root thread. */
  specHash: string;
  threads: readonly Pick<SubAgent, 'threadId' | 'specHash' | 'isRegistered' | 'draftRoles'>[];
  pending: readonly PendingCall[];
}

/** A larger edit is in the blob store: a Temporal run may carry many calls. */
const MAX_INLINE_BYTES = 1024;

export function editedArguments(value: Record<string, unknown>): EditedArguments {
  return { arguments: JSON.stringify(value), hash: hashOf(value) };
}

interface SentDecision {
  status: Approval['status'];
  /** The reason of a denial. */
  reason?: string | null | undefined;
  /** The arguments with which the call is allowed, if they were edited. */
  arguments?: Record<string, unknown> | null | undefined;
}

/** A decision on a call, as clients send it. */
export function approvalOf({ status, reason, arguments: edited }: SentDecision): Approval {
  return status === 'allow'
    ? { status, ...(edited && { edited: editedArguments(edited) }) }
    : { status, ...(reason && { reason }) };
}

/**
 * Checks the edits in an input, once the caller is known to have the right to decide on the calls. Whether the calls
 * still wait is decided by their turn or session. An edit that changes nothing is left out of the result.
 * @throws EngineError `invalid_arguments`, `edit_not_allowed` or `unavailable`
 */
export async function checkEdits<I extends InputItem>(
  engine: Pick<Engine, 'logs' | 'editCheck'>,
  { session, owner, specHash, threads, pending }: EditContext,
  input: I[],
): Promise<I[]> {
  const messages = new Map<string, Promise<ModelMessage | undefined>>();
  const messageOf = ({ turnId, messageId }: PendingCall['source']) => {
    const message = messages.get(messageId) ?? engine.logs.message({ sessionId: session.id, turnId, messageId });
    messages.set(messageId, message);
    return message;
  };
  const checked: I[] = [];
  for (const [i, item] of input.entries()) {
    const edited = editOf(item);
    const waiting = edited && pending.find((call) => callKey(call) === callKey(edited.item));
    const call = waiting && (await messageOf(waiting.source))?.toolCalls[waiting.source.index];
    if (!call || !edited) {
      checked.push(item);
      continue;
    }
    if (editsNothing(call, edited)) {
      checked.push({ ...item, approval: { status: 'allow' } });
      continue;
    }
    const thread = threads.find(({ threadId }) => threadId === waiting.threadId);
    const problem = await engine.editCheck({
      sessionId: session.id,
      owner: ownerOfCall(thread ? ownerOfThread(owner, thread) : owner, call),
      specHash: thread?.specHash ?? specHash,
      call: { ...call, arguments: edited.arguments },
    });
    if (problem) {
      const { code, message, pointer = '' } = problem;
      throw new EngineError(code, message, { param: `input.${i}.approval.arguments${pointer}` });
    }
    checked.push(item);
  }
  return checked;
}

/** How many bytes of an input item the history may contain: fewer of an item with an edit. */
export function inlineBytesOf(item: InputItem): number {
  return editOf(item) ? MAX_INLINE_BYTES : Infinity;
}

export function hasEdits(input: readonly InputItem[]): boolean {
  return input.some((item) => editOf(item) !== undefined);
}

function editOf(
  item: InputItem,
): (EditedArguments & { item: Exclude<InputItem, { type: 'user.message' }> }) | undefined {
  if (item.type !== 'user.tool_approval' || item.approval.status !== 'allow' || !item.approval.edited) return undefined;
  return { ...item.approval.edited, item };
}

/** Whether the arguments are those that the model wrote. */
function editsNothing({ arguments: asked }: ToolCall, { hash }: EditedArguments): boolean {
  // Empty text stands for no arguments. Others were parsed when the call was routed.
  return hashOf(asked.trim() === '' ? {} : JSON.parse(asked)) === hash;
}
