import type { Subject } from '../subject.ts';
import type { RecordBase } from './base.ts';
import type { ApprovalPolicy, CallAction, CallSource, ToolCall } from './calls.ts';
import type { AuthRequired } from './servers.ts';
import type { OpenThread } from './threads.ts';

export type Approval = { status: 'allow'; edited?: EditedArguments } | { status: 'deny'; reason?: string };

/** Arguments with which a call runs instead of those that the model wrote. */
export interface EditedArguments {
  /** A JSON object. */
  arguments: string;
  /** Equal for equal objects, whatever the order of their keys: see `editedArguments`. */
  hash: string;
}

/** What a turn leaves open: calls that wait for a human or a client, and the sub-agents that made them. */
export interface Waiting {
  pending: PendingCall[];
  /** Parents stand before their sub-agents. */
  threads?: OpenThread[];
}

/** A tool call that waits for a human or a client, with the data to run it later, in another turn. */
export interface PendingCall {
  threadId: string;
  toolCallId: string;
  /**
   * No input answers a call that needs a sign-in: the next turn runs it. The next turn also runs a call with `order`,
   * which waits behind earlier calls of its server, and for which no answer is requested: see `heldCalls`.
   */
  needs: 'approval' | 'response' | 'sign_in' | 'order';
  source: CallSource;
  /** The sign-in that it needs. */
  signInId?: string;
  policy?: ApprovalPolicy;
  /** For an approval of a call of an agent that acts in code: what is decided on. The arguments may be a reference. */
  action?: CallAction & Pick<ToolCall, 'info' | 'arguments'>;
  /**
   * The ids of the call's requesters, if its policy excludes them: the owner of the session, the author of the newest
   * user message when the model was called, and the authors of the messages that the turn has received since.
   */
  requesters?: string[];
  /** The call was approved with these arguments. */
  edited?: EditedArguments;
  /** The approval is requested again: see `ASKED_AGAIN` in `tool-records.ts`. */
  isAskedAgain?: true;
  /** As in the call's input, for an approved call that waits for a sign-in, or behind others. */
  onReplaced?: Pick<PendingCall, 'policy' | 'requesters'>;
  /** Set if the call has begun, and waits for an answer of the user to its server. */
  elicitation?: PendingElicitation;
  /**
   * Set if the call has begun and its outcome is unknown: a response reports what happened, an approval runs it again.
   * The text is what is known, and the result if no more is reported.
   */
  unknownOutcome?: string;
  /** Set for a call that waits behind others with the answer to a server's question. The content may be a reference. */
  answered?: { elicitation: PendingElicitation; content: string };
}

/** A call that an input answers. */
export interface AnswerableCall extends PendingCall {
  needs: 'approval' | 'response';
}

/** What an MCP server asks the user while it runs a tool (MCP, "Elicitation"). */
export type Elicitation =
  | { mode: 'form'; message: string; requestedSchema: Record<string, unknown> }
  /** The user is to open the URL; what they do there does not pass through this server. */
  | { mode: 'url'; message: string; url: string };

/** A form is accepted with its content. */
export type ElicitationAnswer =
  | { action: 'accept'; content?: Record<string, string | number | boolean | string[]> }
  | { action: 'decline' | 'cancel' };

/** A question of a server, as the call that waits for its answer carries it. */
export interface PendingElicitation {
  /** The `Elicitation` as JSON. Stored records have a reference, whatever its size: many calls may wait. */
  question: string;
  /** The blob from which the call continues: see `CallRounds` in `src/mcp/call-rounds.ts`. Clients never get it. */
  state: { blob: string };
  /** The task queue of the process that keeps the call open; absent if any worker can continue it. */
  keptOpenBy?: string;
}

export interface ActionRequired extends RecordBase {
  kind: 'tool.approval_required' | 'tool.response_required';
  threadId: string;
  calls: AnswerableCall[];
}

/** What a turn that is done waits for. */
export type RequiredAction = ActionRequired | AuthRequired;

/** A vote on a call, or its expiry or escalation. */
export interface ToolDecided extends RecordBase {
  kind: 'tool.decided';
  threadId: string;
  toolCallId: string;
  /** `respond`: the question of the call's server was answered. */
  decision: 'allow' | 'deny' | 'respond' | 'expired' | 'escalated';
  /** Absent for an expiry or an escalation. */
  by?: Subject;
  reason?: string;
  /** The allowed arguments, if they are not those that the model wrote. */
  edited?: EditedArguments;
  /** The decision holds for later calls of the tool in the turn, or was made on an earlier call. */
  isRemembered?: true;
  /** How many votes are still needed before the call runs. */
  remaining: number;
}

/** Whether a decision ends the wait of its call. */
export function isDecided({ decision, remaining }: ToolDecided): boolean {
  return decision === 'allow' ? remaining === 0 : decision !== 'escalated';
}
