/**
 * The records of a turn: what its log is made of. They are internal and neutral; what a client sees (`wire.ts`) and
 * what a model sees (`transcript.ts`) are two projections of them.
 *
 * A string of 1 KiB or more inside a stored record may be a `BlobRef` instead, until it has been restored: see
 * `src/blobs/offload.ts`. Code that reads a record on the far side of that (workflows, the projection) may look at ids,
 * kinds and routes, never at texts.
 */

import type { Subject } from './subject.ts';

/** The thread of the root agent; sub-agents get threads of their own. */
export const ROOT_THREAD = 'main';

/** A file: small ones travel inside the record, larger ones in the blob store, by the SHA-256 of their bytes in hex. */
export type StoredFile = { type: 'file'; name: string; mimeType: string; bytes: number } & (
  | { base64: string }
  | { blob: string }
);

export type UserContentPart = { type: 'text'; text: string } | StoredFile;

/** What a turn was asked, validated; files are already in the blob store. */
export type InputItem =
  | { type: 'user.message'; content: string | UserContentPart[] }
  | { type: 'user.tool_approval'; threadId: string; toolCallId: string; approval: Approval }
  | { type: 'user.tool_response'; threadId: string; toolCallId: string; content: string };

export type Approval = { status: 'allow' } | { status: 'deny'; reason?: string };

export type ToolInfo =
  | {
      type: 'mcp';
      serverId: string;
      serverName: string;
      name: string;
      /** Not offered to the model until it has searched for it. */
      deferred?: true;
    }
  | { type: 'system'; name: string };

/**
 * What happens to a tool call; decided once, by the activity that received it from the model.
 * - `server`: we run it, after an approval if `approval` says so. `retry` tools may run again with the same operation
 *   id, `once` tools never do. `callHash` stands for the call: see `src/engine/call-hash.ts`.
 * - `client`: the client answers it.
 * - `answered`: it can't run (unknown tool, arguments that don't fit); its result stands right behind the message.
 */
export type ToolRoute =
  | { to: 'server'; effect: 'retry' | 'once'; approval: boolean; callHash: string }
  | { to: 'client' }
  | { to: 'answered' };

export interface ToolCall {
  id: string;
  name: string;
  /** The arguments as the model wrote them: JSON text if the model behaved. */
  arguments: string;
  info: ToolInfo;
  route: ToolRoute;
  providerFields?: Record<string, unknown>;
}

/** Token counts as the provider reported them. */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheWriteTokens: number;
  reasoningTokens: number;
  /** Attempts at the model that ended before it had said what they cost; the tokens are without theirs. */
  unreportedAttempts?: number;
}

/** What the input tokens of a message were used for, estimated: the parts add up to its `usage.inputTokens`. */
export interface InputBreakdown {
  /** What the server adds to the agent's instructions. */
  harness: number;
  skills: number;
  instructions: number;
  toolDefinitions: number;
  messages: number;
}

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter' | 'cancelled' | 'error';

/** How a tool call ended. Every call ends in exactly one of these. */
export type ToolOutcome = 'succeeded' | 'failed' | 'denied' | 'expired' | 'cancelled' | 'unknown_outcome';

interface Base {
  id: string;
  /** ISO-8601, UTC, milliseconds. */
  at: string;
}

export interface TurnCreated extends Base {
  kind: 'turn.created';
  turnId: string;
  sessionId: string;
  previousTurnId: string | null;
  createdBy: Subject;
  input: InputItem[];
  specHash: string;
}

export interface ModelMessage extends Base {
  kind: 'model.message';
  threadId: string;
  content: string;
  refusal: string;
  reasoning: string;
  toolCalls: ToolCall[];
  finishReason: FinishReason;
  usage?: Usage;
  inputBreakdown?: InputBreakdown;
  /** Fields of the provider that only the provider understands, such as reasoning signatures. */
  providerFields?: Record<string, unknown>;
}

/** The message of a model call from which nothing arrived; `usage` is undefined if no attempt was made. */
export function emptyMessage(
  { messageId: id, createdAt: at, threadId }: { messageId: string; createdAt: string; threadId: string },
  finishReason: FinishReason,
  usage: Usage | undefined,
): ModelMessage {
  return {
    kind: 'model.message',
    id,
    at,
    threadId,
    content: '',
    refusal: '',
    reasoning: '',
    toolCalls: [],
    finishReason,
    ...(usage && { usage }),
  };
}

export interface ToolResponse extends Base {
  kind: 'tool.response';
  threadId: string;
  toolCallId: string;
  outcome: ToolOutcome;
  /**
   * The result as text, at most `MAX_RESULT_BYTES`; a longer one is cut and stands whole among `files`. Of a denied call
   * the reason, if there is one. `responseText` makes of it what is shown.
   */
  content: string;
  /** Images, other binary results, and the whole of a text that was cut. */
  files?: StoredFile[];
  /** Of a search for tools: those that the model is offered from now on. */
  foundTools?: FoundTool[];
}

/** A tool by what does not change when its agent does: names of servers are unique in an agent. */
export interface FoundTool {
  server: string;
  name: string;
}

export interface McpInitialized extends Base {
  kind: 'mcp.initialize';
  threadId: string;
  servers: { id: string; name: string; sessionId: string | null; transport: 'streamable-http' | 'sse' | 'stdio' }[];
}

/** A tool call that waits for a human or a client, and all that is needed to run it later, in another turn. */
export interface PendingCall {
  threadId: string;
  toolCallId: string;
  needs: 'approval' | 'response';
  source: CallSource;
}

/** Where a tool call stands: the `index`-th call of a message of a turn. */
export interface CallSource {
  turnId: string;
  messageId: string;
  /** Of the result that brought the message. Attempts at a message share its id; this is the one that was accepted. */
  stamp: string;
  index: number;
  /** Absent on calls that the client answers. */
  run?: { effect: 'retry' | 'once'; callHash: string };
}

export interface ActionRequired extends Base {
  kind: 'tool.approval_required' | 'tool.response_required';
  threadId: string;
  calls: PendingCall[];
}

export type CancelReason = 'client-cancelled' | 'cancelled-for-next-turn' | 'server-execution-timeout' | 'abandoned';

export type TurnOutcome =
  | { status: 'done'; output: ModelMessage | null; requiredActions: ActionRequired[] }
  | { status: 'cancelled'; reason: CancelReason }
  | { status: 'error'; message: string };

/** In one word; `action_required`: it has done what it could, and waits for somebody. */
export type OutcomeStatus = TurnOutcome['status'] | 'action_required';

export function endStatus(end: TurnOutcome): OutcomeStatus {
  return end.status === 'done' && end.requiredActions.length > 0 ? 'action_required' : end.status;
}

export interface TurnDone extends Base {
  kind: 'turn.done';
  end: TurnOutcome;
  usage: Usage;
}

export type LogRecord = TurnCreated | ModelMessage | ToolResponse | McpInitialized | ActionRequired | TurnDone;

type WithoutId<R> = R extends unknown ? Omit<R, 'id'> : never;

/** A record that has no place in its log yet, and so no id but for a message's, which is fixed before. */
export type UnsequencedRecord = ModelMessage | WithoutId<Exclude<LogRecord, ModelMessage>>;

/** A record as an activity returns it. */
export type NewRecord = ModelMessage | WithoutId<ToolResponse> | WithoutId<McpInitialized>;

/** A record at its place: `ordinal` counts the durable events of a turn from 1. */
export interface LogEntry {
  ordinal: number;
  record: LogRecord;
}

export const NO_USAGE: Usage = {
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
};

/** An attempt of which only is known that it was made. */
export const UNREPORTED: Usage = { ...NO_USAGE, unreportedAttempts: 1 };

export function addUsage(a: Usage, b: Usage | undefined): Usage {
  if (!b) return a;
  const unreportedAttempts = (a.unreportedAttempts ?? 0) + (b.unreportedAttempts ?? 0);
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    cacheReadTokens: a.cacheReadTokens + b.cacheReadTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
    ...(unreportedAttempts > 0 && { unreportedAttempts }),
  };
}
