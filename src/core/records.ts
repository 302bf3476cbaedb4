/**
 * The records of a turn, which make up its log. They are internal and neutral; the events that a client receives
 * (`src/api/sessions/wire/events-to-wire.ts`) and the conversation that a model receives (`transcript.ts`) are
 * projections of them.
 *
 * In a stored record a string of 1 KiB or more may be replaced by a `BlobRef`, until it is restored: see
 * `src/blobs/offload.ts`. Code that reads stored records (workflows, `Turn`) may use ids, kinds and routes,
 * never texts.
 */

import type { EndedActivity } from './attempts.ts';
import type { BudgetReport } from './budget.ts';
import type { CallOrder } from './call-order.ts';
import type { GivenConversation } from './given-conversation.ts';
import type { Role, Subject } from './subject.ts';
import type { TurnTotals } from './turn-totals.ts';

/** The thread of the root agent; sub-agents get threads of their own. */
export const ROOT_THREAD = 'main';

/** A file. A small one is inside the record, a larger one in the blob store under the SHA-256 of its bytes in hex. */
export type StoredFile = {
  type: 'file';
  name: string;
  mimeType: string;
  bytes: number;
  /** The model is given the sound. Of other files with audio it is told only that they exist. */
  asAudio?: true;
} & ({ base64: string } | { blob: string });

/** What was extracted from a file of the user: the text, as a blob of the session, or why there is none. */
export type FileText = {
  /** Identifies the file, and as what it was read: see `extractionKey`. */
  file: string;
} & ({ blob: string } | { problem: string });

export type UserContentPart = { type: 'text'; text: string } | StoredFile;

/** A validated item of a turn's input; files are already in the blob store. */
export type InputItem =
  | { type: 'user.message'; content: string | UserContentPart[] }
  | ({ type: 'user.tool_approval'; threadId: string; toolCallId: string; approval: Approval } & KeptBy)
  | ({ type: 'user.tool_response'; threadId: string; toolCallId: string; content: string } & KeptBy);

/**
 * The conversation before a turn, if its client keeps it: the turn has no previous one. It is a blob of the session, so
 * that a long one is stored once, and readers of the log do not load it.
 */
export interface ConversationRef {
  /** A `GivenConversation` as JSON. */
  blob: string;
  /** The calls of the conversation that had no result: the model is told that they were cancelled. */
  repaired?: string[];
  /** The conversation, where it was loaded for a model call. Stored records do not have it. */
  given?: GivenConversation;
}

/** An answer that was given before the turn could start has its author, who need not be the creator of the turn. */
interface KeptBy {
  by?: Subject;
}

export type Approval = { status: 'allow'; edited?: EditedArguments } | { status: 'deny'; reason?: string };

/** Arguments with which a call runs instead of those that the model wrote. */
export interface EditedArguments {
  /** A JSON object. */
  arguments: string;
  /** Equal for equal objects, whatever the order of their keys: see `editedArguments`. */
  hash: string;
}

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
 *   operation id, `once` tools never do. `callHash` identifies the call: see `src/engine/call-hash.ts`. `order` is set if
 *   the calls of its MCP server run in the order of their message.
 * - `client`: the client answers it.
 * - `thread`: a sub-agent answers it; the record of its thread follows the message.
 * - `session`: another agent answers it, in a session of its own, which the server creates when it runs the call.
 * - `answered`: it cannot run (unknown tool, invalid arguments), or the conversation itself answers it; its result
 *   directly follows the message.
 */
export type ToolRoute =
  | ({ to: 'server'; effect: 'retry' | 'once'; approval: boolean; callHash: string; order?: CallOrder } & AsDraft &
      Pick<PendingCall, 'policy' | 'requesters'>)
  | { to: 'client' }
  | { to: 'thread'; threadId: string }
  | ({ to: 'session'; sessionId: string; callHash: string } & AsDraft)
  /** `ran`: the server has run it, and its result was recorded together with the message. */
  | { to: 'answered'; ran?: true };

/** Work that a client has brought to a registered agent, which gives it no rights. */
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
  /** The hash of the agent's whole policy, by which it is told from others; undefined if the call has none. */
  id?: string;
  /** Undefined: those with the right to decide in the session. */
  approvers?: Approvers;
  /** Those who have asked for the call may not decide on it: see `requesters` of `PendingCall`. */
  excludeRequester?: true;
  /** How many subjects must allow the call; one denial decides. */
  quorum: number;
  expiresInSeconds?: number;
  onExpiry: 'deny' | 'allow' | 'end';
  /** Who may decide, too, if nobody has after this time. */
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

const MEDIA_TOKENS = ['audioInput', 'imageInput', 'cachedAudio', 'cachedImage', 'audioOutput', 'imageOutput'] as const;

/** Tokens of audio and of images: parts of those of input, of those read from the cache, and of output. */
export type MediaTokens = { [Kind in (typeof MEDIA_TOKENS)[number]]?: number };

/** Token counts as the provider reported them. */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheWriteTokens: number;
  reasoningTokens: number;
  /** The tokens that are not text, as far as the provider tells them apart. */
  media?: MediaTokens;
  /** What the tokens cost; absent if a model's price is unknown. */
  costInUsd?: number;
  /** Attempts that ended before the provider reported their usage; the token counts do not include them. */
  unreportedAttempts?: number;
}

/** An estimate of how the input tokens of a message are divided: the parts add up to its `usage.inputTokens`. */
export interface InputBreakdown {
  /** The text that the server adds to the agent's instructions. */
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
  /**
   * The activities of the turn that have ended with this record, or since the one before it without a record. Only `Turn`
   * adds them, fed with a history; the workflow does not know them.
   */
  activities?: EndedActivity[];
}

export interface TurnCreated extends Base {
  kind: 'turn.created';
  turnId: string;
  sessionId: string;
  previousTurnId: string | null;
  createdBy: Subject;
  input: InputItem[];
  conversation?: ConversationRef;
  /** That of the turn's start. */
  isRun?: true;
  specHash: string;
  /** The turn waits in the queue of its session, or has ended there: its position in it at its creation, from 1. */
  queued?: { position: number };
  /** When it began, if it has waited in the queue. */
  begunAt?: string;
  /** It stands for a record that is damaged: see `lostRecord`. Stored records do not have it. */
  isLost?: true;
}

export interface ModelMessage extends Base {
  kind: 'model.message';
  threadId: string;
  content: string;
  refusal: string;
  reasoning: string;
  toolCalls: ToolCall[];
  /** The order of its parts, with the searches of the provider: see `storedSections`. Absent: it is one section. */
  sections?: string;
  finishReason: FinishReason;
  usage?: Usage;
  inputBreakdown?: InputBreakdown;
  /** Opaque fields of the provider, such as reasoning signatures. */
  providerFields?: Record<string, unknown>;
  /** The provider whose model wrote the message, by its name on this server; absent if it is not known, or none was called. */
  provider?: string;
  /** The model's name at that provider. */
  model?: string;
  /** The attempts before the one that wrote the message, if there were any: the provider failed. */
  attempts?: FailedAttempt[];
  /** The texts of files that were extracted for the message's model call; later calls use them. */
  fileTexts?: FileText[];
  /** The message is the last one of the conversation that the client gave: no model was called for it. */
  isGiven?: true;
  /** It stands for a record that is damaged: see `lostRecord`. Stored records do not have it. */
  isLost?: true;
  /** What the model has said instead of written, or beside it. */
  audio?: SpokenAudio;
  /** What it has drawn. */
  images?: MadeImage[];
  /** The check of an answer for which the agent has a JSON Schema; `isAnyJson`: it has none, and requires JSON. */
  structured?: { fits: true } | { fits: false; problem: string; isAnyJson?: true };
}

export interface MadeImage {
  file: StoredFile;
  /** Opaque fields of its provider. */
  providerFields?: Record<string, unknown>;
}

export interface SpokenAudio {
  file: StoredFile;
  /** What later model calls are given of it. */
  transcript: string;
  /** That of its provider. */
  id?: string;
  /** In hertz, if the file has samples without a header. */
  sampleRate?: number;
  channels?: number;
}

/** Whether a message is an answer that is not accepted. The model is asked for another one, unless the turn ends. */
export function isMisfit({ structured }: ModelMessage): boolean {
  return structured?.fits === false;
}

export interface FailedAttempt {
  provider: string;
  model: string;
  /** The class of the failure. */
  failure: string;
}

/** What is known of a message before its model call. */
export interface MessagePlan {
  threadId: string;
  messageId: string;
  /** `created_at` of the message: the same for every attempt. */
  createdAt: string;
  /** The conversation ends with the turn's record at this ordinal. */
  upTo: number;
  /** The agent has MCP servers, and the records of the call begin with the one of their connections. */
  connectsServers?: true;
  /** How many sub-agents the message may start; default: none. */
  mayStart?: number;
}

/** The records of a model call from which nothing arrived; `usage` is undefined if no attempt was made. */
export function emptyAnswer(
  plan: MessagePlan,
  finishReason: FinishReason,
  usage: Usage | undefined,
): (ModelMessage | WithoutId<McpInitialized>)[] {
  const { messageId: id, createdAt: at, threadId } = plan;
  const message: ModelMessage = {
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
  return plan.connectsServers ? [serversConnected(plan, { servers: [] }), message] : [message];
}

/** A result that is too long for its record: a blob of the session. */
export interface FullText {
  name: string;
  mimeType: string;
  bytes: number;
  characters: number;
  blob: string;
  sessionId: string;
}

export interface ToolResponse extends Base {
  kind: 'tool.response';
  threadId: string;
  toolCallId: string;
  outcome: ToolOutcome;
  /** The arguments with which the call ran, if a person has edited those of the model: a JSON object. */
  arguments?: string;
  /**
   * The result as text, at most `MAX_RESULT_BYTES`; a longer one is cut, and `fullText` has all of it. For a denied call
   * the reason, if there is one. `responseText` turns it into what model and client read.
   */
  content: string;
  /** Images and other binary results. */
  files?: StoredFile[];
  /** The whole text, if `content` was cut. */
  fullText?: FullText;
  /** What an MCP server has returned as structured content, as JSON, if the text does not have all of it. */
  structuredContent?: StoredFile;
  /** For a search for tools: the tools that are offered to the model from now on. */
  foundTools?: FoundTool[];
  /** Who has given the result, in a turn that waited for it. */
  by?: Subject;
  /** The thread of the sub-agent that has answered. Only the model reads its answer here. */
  fromThread?: string;
  /** The result was given with the conversation before the turn. */
  isGiven?: true;
  /** A given result that the client has not sent: another run has it. */
  isReused?: true;
  /** Why the call has no result of its tool, unless its outcome says that. Absent: it has one, or was not to be run. */
  noResult?: NoResult;
  /** The message of the error that the client's tool has thrown, which the model is not shown. */
  error?: string;
  /** The hash of the client's answer, by which a repetition of it is known. */
  answerHash?: string;
  /** Where it ran, if its server keeps state for a connection. */
  connection?: StatefulConnection;
}

/** A connection for which its server keeps state: what a call leaves there, only calls on the same one find. */
export interface StatefulConnection {
  serverId: string;
  /** Unique for each connection that was ever opened. */
  id: string;
}

/**
 * Why a call has no result of its tool.
 * - `unknown_tool`: there is no tool of its name.
 * - `unreachable`: its server could not be reached.
 * - `protocol`: its server has not answered as MCP requires, or with a protocol error.
 * - `client`: its client reports that the tool threw an error.
 */
export type NoResult = 'unknown_tool' | 'unreachable' | 'protocol' | 'client';

/** A tool, identified independently of changes to its agent: names of servers are unique in an agent. */
export interface FoundTool {
  server: string;
  name: string;
}

export interface McpInitialized extends Base {
  kind: 'mcp.initialize';
  threadId: string;
  servers: {
    id: string;
    name: string;
    sessionId: string | null;
    transport: 'streamable-http' | 'sse' | 'stdio';
    /** What the agent's author should know that concerns the server. */
    warnings?: string[];
    /** Absent if the server requires no sign-in. */
    account?: ConnectedAccount;
  }[];
  /** The servers whose tools are not offered, and why; absent if there are none. */
  unavailable?: { name: string; reason: string }[];
}

/** The servers of an agent, as they were found. */
export type FoundServers = Pick<McpInitialized, 'servers' | 'unavailable'>;

/** The account at an authorization server with which a session uses an MCP server. */
export interface ConnectedAccount {
  grantId: string;
  /** Null if the authorization server did not name it. */
  account: string | null;
  issuer: string;
  /** When the owner signed in. */
  since: string;
}

/** The record before a thread's first message. It has the message's time, so that every attempt gives the same one. */
export function serversConnected(
  { createdAt: at, threadId }: MessagePlan,
  found: FoundServers,
): WithoutId<McpInitialized> {
  return { kind: 'mcp.initialize', at, threadId, ...found };
}

/** An MCP server to which the owner of the session has to sign in. */
export interface ServerSignIn {
  id: string;
  name: string;
  signInId: string;
  authUrl: string;
}

/** Servers require a sign-in. The thread waits for it. */
export interface AuthRequired extends Base {
  kind: 'mcp.auth_required';
  threadId: string;
  servers: ServerSignIn[];
  /** The calls that the servers did not execute, and that run after the sign-in. */
  calls: PendingCall[];
}

/** The thread of a sub-agent, and all that is needed to run it: in this run of the turn, in the next, in a later turn. */
export interface SubAgent extends AsDraft {
  threadId: string;
  /** The name that its parent has given it. */
  title: string;
  /** The call that it answers. */
  parent: Pick<PendingCall, 'threadId' | 'toolCallId'>;
  /** 1 for a sub-agent of the root agent, 2 for one of its sub-agents. */
  depth: number;
  specHash: string;
  /** The name of the registered agent that it is. Absent: it is dynamic, and has the tools of its parent. */
  agent?: string;
  /** The spec is that of a registered agent, with whose rights it runs, also in the session of a draft. */
  isRegistered?: true;
  /** Set for a dynamic one whose model is not its parent's. */
  model?: string;
  hasServers: boolean;
  /** The limit of its model calls. */
  iterations: number;
}

/** A sub-agent that is not done. */
export interface OpenThread extends SubAgent {
  /** Its model calls so far. */
  steps: number;
  /** How many of them have found that a sign-in is missing. */
  refused?: number;
}

/** A message that readers may have been shown the beginning of. */
export type PlannedMessage = Pick<MessagePlan, 'messageId' | 'createdAt'>;

export interface ThreadCreated extends Base {
  kind: 'thread.created';
  thread: SubAgent;
  /** The sub-agent's task, with which its conversation begins. */
  input: string;
}

export interface ThreadDone extends Base {
  kind: 'thread.done';
  threadId: string;
  title: string;
  parent: SubAgent['parent'];
  end: { status: 'done' } | { status: 'error'; message: string };
  /** The last message of a thread that is done; `Turn` adds it. */
  output?: ModelMessage;
}

/** What keeps a turn from being answered: calls that wait for a human or a client, and the sub-agents that made them. */
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
   * A call that needs a sign-in is not answered by an input: the next turn runs it. So does it with one that waits for its
   * turn behind earlier calls of its server, which nobody is asked about: see `heldCalls`.
   */
  needs: 'approval' | 'response' | 'sign_in' | 'order';
  source: CallSource;
  /** The sign-in that it needs. */
  signInId?: string;
  policy?: ApprovalPolicy;
  /**
   * The ids of those who have asked for the call, if its policy excludes them: the owner of the session, the author of the
   * newest user message when the model was called, and those of the messages that the turn has got since.
   */
  requesters?: string[];
  /** The call was approved with these arguments. */
  edited?: EditedArguments;
  /** The approval is asked for once more: see `ASKED_AGAIN` in `tool-records.ts`. */
  isAskedAgain?: true;
  /** That of the call's input, for a call that waits for a sign-in, or behind others, after its approval. */
  onReplaced?: Pick<PendingCall, 'policy' | 'requesters'>;
  /** Set if the call has begun, and waits for an answer of the user to its server. */
  elicitation?: PendingElicitation;
  /**
   * Set if the call has begun and its outcome is unknown: a response says what happened, an approval has it run again. The
   * text is what is known: the result if nobody knows more.
   */
  unknownOutcome?: string;
  /** Set for a call that waits behind others with the answer to its server's question; the content may be a reference. */
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

/** The position of a tool call: the `index`-th call of a message of a turn. */
export interface CallSource {
  turnId: string;
  messageId: string;
  /** The stamp of the result with the message. Attempts at a message share its id; this is the accepted one. */
  stamp: string;
  index: number;
  /** Absent on calls that the client answers. */
  run?: { effect: 'retry' | 'once'; callHash: string; order?: CallOrder };
}

export interface ActionRequired extends Base {
  kind: 'tool.approval_required' | 'tool.response_required';
  threadId: string;
  calls: AnswerableCall[];
}

/** What a turn that is done waits for. */
export type RequiredAction = ActionRequired | AuthRequired;

/** A vote on a call, or what time has decided. */
export interface ToolDecided extends Base {
  kind: 'tool.decided';
  threadId: string;
  toolCallId: string;
  /** `respond`: the question of the call's server was answered. */
  decision: 'allow' | 'deny' | 'respond' | 'expired' | 'escalated';
  /** Absent if time has decided. */
  by?: Subject;
  reason?: string;
  /** What was allowed, if not the arguments that the model wrote. */
  edited?: EditedArguments;
  /** It holds for later calls of the tool in the turn, or is that of an earlier call. */
  isRemembered?: true;
  /** How many votes are still needed before the call runs. */
  remaining: number;
}

/** The client is to refresh toolkits before the model of the root agent is called again, after this message. */
export interface RefreshRequired extends Base {
  kind: 'toolkit.refresh_required';
  messageId: string;
  toolkits: string[];
}

/** What a toolkit of the client has from now on. */
export interface ToolkitRefreshed extends Base {
  kind: 'toolkit.refreshed';
  by: Subject;
  /** The message after which it was required. */
  messageId: string;
  toolkit: string;
  systemPrompt?: string;
  /** As JSON. */
  tools: string;
  /** Equal for equal prompts and tools: long texts may be references. */
  hash: string;
}

/**
 * Why a turn is paused. While there is a reason, its time limit stops.
 * - `action`: it has nothing to do until it gets answers.
 * - `sign_in`: the same, and it waits for sign-ins only.
 * - `delegation`: it has nothing to do until agents in sessions of their own have answered its calls.
 * - `requested`: a command holds it.
 * - `budget`: it is held because its budget was reached.
 */
export type PauseReason = 'action' | 'sign_in' | 'delegation' | 'requested' | 'budget';

/** A pause begins or ends. A turn may be paused for several reasons at once, each with records of its own. */
export interface TurnPaused extends Base {
  kind: 'turn.paused' | 'turn.resumed';
  reason: PauseReason;
  /** Whose command caused it; absent if there was none. */
  by?: Subject;
  /** Set if the reason is the budget: as it is after the pause, or after it was raised. */
  budget?: BudgetReport;
  /** Clients get the event only if they ask for all: those of an agent without budgets and pauses may not know it. */
  isHidden?: true;
}

/** A message of a user for the root agent of a running turn. */
export interface UserSteered extends Base {
  kind: 'user.steered';
  by: Subject;
  /** The command that brought it: see `SteerCommand`. */
  commandId: string;
  /** The session that has the files of the content. */
  sessionId: string;
  content: string | UserContentPart[];
}

/**
 * The conversation of a thread was compacted: its later model calls get less of what came before. The log keeps all of
 * it.
 */
export interface ContextCompacted extends Base {
  kind: 'context.compacted';
  threadId: string;
  /** The ordinal in this turn up to which the thread's records are replaced, with those of the previous turns. */
  through: number;
  /** What replaces them. Absent: only the results of their tool calls are cleared. */
  summary?: string;
  /** The input of the next model call before and after it, as far as it can be estimated. */
  tokensBefore: number;
  tokensAfter: number;
  /** The tools that the thread has found so far. */
  foundTools?: FoundTool[];
  /** The connections on which the thread's last call of each server ran. */
  connections?: StatefulConnection[];
  /** Of the model calls that wrote the summary. */
  usage?: Usage;
  /** Every client gets the event: those of an agent whose turns wait know it. */
  isShown?: true;
}

export type CancelReason = 'client-cancelled' | 'cancelled-for-next-turn' | 'server-execution-timeout' | 'abandoned';

export type TurnOutcome =
  | {
      status: 'done';
      output: ModelMessage | null;
      requiredActions: RequiredAction[];
      /** The calls that wait behind those of the actions. */
      held?: PendingCall[];
      /** The sub-agents that wait with the root agent. */
      threads?: OpenThread[];
    }
  | { status: 'cancelled'; reason: CancelReason }
  | TurnError;

/** A turn that ends with an error. */
export interface TurnError {
  status: 'error';
  message: string;
  code?: TurnErrorCode;
  /** How the provider has failed, if the code is `model_failed`. */
  modelFailure?: ModelFailed;
}

export interface ModelFailed {
  /** The class of the failure. */
  kind: string;
  /** The HTTP status that the provider has sent. */
  status?: number;
}

/**
 * Why a turn has failed. Absent: for another reason, or for an unknown one.
 * - `budget_exceeded`: its budget was reached.
 * - `iteration_limit`: its limit of model calls was reached.
 * - `answer_misfit`: no answer has fitted the agent's schema.
 * - `model_failed`: the provider has failed, permanently or for too long.
 * - `tool_failed`: a call has no result, and the agent's turns end then.
 * - `repeated_call_id`: the model gave two calls of a message the same id, and the agent's turns end then.
 * - `server_unavailable`: an MCP server without which the agent does not begin is unavailable.
 * - `repeated_tool_name`: its client has given it two tools of one name.
 * - `action_expired`: the turn has waited for answers for as long as it may.
 */
export type TurnErrorCode =
  | 'budget_exceeded'
  | 'iteration_limit'
  | 'answer_misfit'
  | 'model_failed'
  | 'tool_failed'
  | 'repeated_call_id'
  | 'server_unavailable'
  | 'repeated_tool_name'
  | 'action_expired';

/** The outcome in one word; `action_required`: the turn is done, and calls are pending on it. */
export type OutcomeStatus = TurnOutcome['status'] | 'action_required';

export function endStatus(end: TurnOutcome): OutcomeStatus {
  return end.status === 'done' && end.requiredActions.length > 0 ? 'action_required' : end.status;
}

/** Whether a turn that is done has said anything. */
export function hasAnswer({ output }: Extract<TurnOutcome, { status: 'done' }>): boolean {
  return output !== null && output.content + output.refusal !== '';
}

/** A limit at which a turn is asked for its answer: of its model calls, or of the time for which it works. */
export type AnswerLimit = 'iterations' | 'time';

export interface TurnDone extends Base, TurnTotals {
  kind: 'turn.done';
  end: TurnOutcome;
  /** Set if the turn was asked for its answer, whatever came of it. */
  limit?: AnswerLimit;
  /** How long the turn was paused. */
  waitedMs: number;
  /** How long it has worked: without pauses, and without the time in the queue of its session. */
  workedMs: number;
}

export type LogRecord =
  | TurnCreated
  | ModelMessage
  | ToolResponse
  | McpInitialized
  | ThreadCreated
  | ThreadDone
  | RequiredAction
  | ToolDecided
  | RefreshRequired
  | ToolkitRefreshed
  | TurnPaused
  | UserSteered
  | ContextCompacted
  | TurnDone;

export type WithoutId<R> = R extends unknown ? Omit<R, 'id'> : never;

/** A record without a position in its log, and so without an id; only a message has its id in advance. */
export type UnsequencedRecord = ModelMessage | WithoutId<Exclude<LogRecord, ModelMessage>>;

/** A record as an activity returns it. */
export type NewRecord =
  | ModelMessage
  | WithoutId<
      ToolResponse | McpInitialized | AuthRequired | ThreadCreated | ThreadDone | RefreshRequired | ContextCompacted
    >;

/** A record at its position: `ordinal` counts the durable events of a turn from 1. */
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

/** The usage of an attempt that reported none. */
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
    ...mediaUsage(a.media, b.media),
    ...addCost(a, b),
    ...(unreportedAttempts > 0 && { unreportedAttempts }),
  };
}

/** The sum of media tokens; without any, there is no field for them. */
export function mediaUsage(...all: (MediaTokens | undefined)[]): Pick<Usage, 'media'> {
  const sums = MEDIA_TOKENS.map((kind) => [kind, all.reduce((sum, one) => sum + (one?.[kind] ?? 0), 0)] as const);
  const some = sums.filter(([, sum]) => sum > 0);
  return some.length > 0 ? { media: Object.fromEntries(some) } : {};
}

/** A sum with an unknown part is unknown. A usage without tokens costs nothing, and has no cost of its own. */
function addCost(a: Usage, b: Usage): Pick<Usage, 'costInUsd'> {
  const costs = [a, b].filter((usage) => usage.inputTokens + usage.outputTokens > 0).map(({ costInUsd }) => costInUsd);
  const known = costs.filter((cost) => cost !== undefined);
  if (known.length === 0 || known.length < costs.length) return {};
  return { costInUsd: known.reduce((sum, cost) => sum + cost, 0) };
}
