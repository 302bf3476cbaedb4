import type { CallOrder } from '../call-order.ts';
import type { Role } from '../subject.ts';
import type { PendingCall } from './pending.ts';

export type ToolInfo =
  | {
      type: 'mcp';
      serverId: string;
      serverName: string;
      name: string;
      /** Not offered to the model until a search of the model has found it. */
      deferred?: true;
    }
  | { type: 'system'; name: string };

/**
 * Where a tool call runs; decided once, by the activity that received it from the model.
 * - `server`: the server runs it, after an approval if `approval` is set. `retry` tools may run again with the same
 *   operation id, `once` tools never do. `callHash` identifies the call: see `src/engine/call-hash.ts`. `order` is set
 *   if the calls of its MCP server run in the order of their message. `inSandbox` calls run on the host of the
 *   session's sandbox, which starts each of them once, however many attempts there are. A call that `startsTask` gets
 *   the result of a sub-agent, whose thread begins when the call runs.
 * - `client`: the client runs it.
 * - `thread`: a sub-agent works on it; the record of its thread follows the message.
 * - `session`: another agent works on it, in a session of its own, which the server creates when it runs the call.
 * - `answered`: it cannot run (unknown tool, invalid arguments), or the conversation contains its result; the result
 *   directly follows the message.
 */
export type ToolRoute =
  | ({ to: 'server'; effect: 'retry' | 'once'; approval: boolean; action?: CallAction } & ServerCall &
      AsDraft &
      Pick<PendingCall, 'policy' | 'requesters'>)
  | { to: 'client' }
  | { to: 'thread'; threadId: string }
  | ({ to: 'session'; sessionId: string; callHash: string } & AsDraft)
  /** `ran`: the server has run it, and its result was recorded together with the message. */
  | { to: 'answered'; ran?: true };

/** What a call of an agent that acts in code does; decided with its route. */
export interface CallAction {
  type:
    | 'code'
    | 'shell'
    | 'shell_script'
    | 'tool'
    | 'file_read'
    | 'file_write'
    | 'file_edit'
    | 'reset'
    | 'task'
    | 'save_tool';
  /** A command that may do more than its text shows. */
  isOpaque?: true;
  /** The call of the code that has made this one. */
  parent?: Pick<PendingCall, 'threadId' | 'toolCallId'>;
  /** When the code stops waiting for a decision on the call: milliseconds since 1970. */
  expiresAt?: number;
}

/** The fields of a call that the server runs. */
interface ServerCall {
  callHash: string;
  order?: CallOrder;
  inSandbox?: true;
  startsTask?: true;
  /** A kernel host has begun the call of its code, and has no result: it may have reached the tool. */
  hasBegun?: true;
}

/** Work that a client has sent to a registered agent; the agent gives it no rights. */
export interface AsDraft {
  /** The roles of the client: the work has the rights that it would have in a draft of the client. */
  draftRoles?: readonly string[];
}

/** Who may decide on a call, by subject ids and roles. */
export interface Approvers {
  subjects: string[];
  roles: Role[];
}

/** The agent's policy for the approval of a call; decided with its route. */
export interface ApprovalPolicy {
  /** The hash of the agent's whole policy, which distinguishes it from others; undefined if the call has none. */
  id?: string;
  /** Undefined: all subjects with the right to decide in the session. */
  approvers?: Approvers;
  /** The requesters of the call may not decide on it: see `requesters` of `PendingCall`. */
  excludeRequester?: true;
  /** How many subjects must allow the call; one denial decides. */
  quorum: number;
  expiresInSeconds?: number;
  onExpiry: 'deny' | 'allow' | 'end';
  /** Further approvers if the call is undecided after this time. */
  escalate?: { afterSeconds: number; to: Approvers };
  /** The call runs with the arguments that the model wrote, or not at all. */
  mayEditArguments?: false;
}

export interface ToolCall {
  id: string;
  name: string;
  /** The arguments as the model wrote them; usually, but not always, valid JSON. */
  arguments: string;
  info: ToolInfo;
  route: ToolRoute;
  providerFields?: Record<string, unknown>;
}

/** The position of a tool call: the `index`-th call of a message of a turn. */
export interface CallSource {
  turnId: string;
  messageId: string;
  /** The stamp of the result with the message. Attempts at a message share its id; this is the accepted one. */
  stamp: string;
  index: number;
  /** Absent on calls that the client runs. */
  run?: { effect: 'retry' | 'once' } & ServerCall;
}
