import type { ToolCall } from './records/calls.ts';
import type { InputItem, StoredFile, UserContentPart } from './records/input.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import type { PendingCall } from './records/pending.ts';
import type { FullText, FoundTool, StatefulConnection } from './records/results.ts';
import { ROOT_THREAD } from './records/threads.ts';
import type { UserSteered } from './records/turn.ts';
import { begunBy, CUT_OFF } from './stopped-work.ts';
import { outcomeText, responseText, type CallKey } from './tool-records.ts';

/** An item of the conversation that a model receives, in a neutral form that each provider's adapter translates. */
export type TranscriptItem =
  | { role: 'user'; content: UserContentPart[] }
  | { role: 'assistant'; message: ModelMessage }
  | ToolItem;

export interface ToolItem {
  role: 'tool';
  toolCallId: string;
  name: string;
  content: string;
  files: StoredFile[];
  /** The whole text of a result that was cut when it was stored. */
  fullText?: FullText;
}

/** The result of a call that was pending on a turn, on a branch that continued without resolving it. */
const NOT_DECIDED = 'This tool call was not approved in this conversation: it was not executed here.';

/** The result of a call that waited behind another one, on such a branch. */
const NOT_BEGUN =
  'This tool call was not executed in this conversation: it waited for an earlier one of the same server to end.';

/** The result of a call whose server had asked the user, on such a branch. */
const NOT_ANSWERED =
  'This tool call asked the user for input that was not given in this conversation: it was not completed here.';

/** The text before the first result of a connection that has replaced another one. */
export const CONNECTION_REPLACED =
  '[The connection to this MCP server was replaced since your last call of it: what the server held for you, such as open pages, processes or a login, was lost before this call ran.]';

/** A record or an input item that holds a tool's result. */
type ToolResult =
  | Extract<UnsequencedRecord, { kind: 'tool.response' }>
  | Extract<InputItem, { type: 'user.tool_response' }>;

/** The facts about a call outside its message: what it waited for last, and its result. */
interface KnownCall {
  pending?: PendingCall;
  result?: ToolResult;
  /** A lost record follows the call, and may have been its result. */
  mayHaveRun?: true;
}

/** The items of results. Each is created once, so that values derived from an item can be cached with it. */
const TOOL_ITEMS = new WeakMap<ToolResult, ToolItem>();

/**
 * The conversation of a thread: the records of the turns of a chain, oldest first, and of the turn in progress. The
 * conversation of a sub-agent begins with its task, and contains nothing of its parent's.
 *
 * Providers reject a tool call that is not directly followed by exactly one result. So the result of each call is
 * looked up in the whole chain (an approved call runs in a later turn than the one that requested it), and a call
 * without a result gets the result that it was not executed.
 */
export function transcript(records: UnsequencedRecord[], threadId: string): TranscriptItem[] {
  return indexedTranscript(records, threadId).map(({ item }) => item);
}

/** An item of a conversation, and the index of its record. Results of calls have the index of their message. */
export interface IndexedItem {
  item: TranscriptItem;
  at: number;
}

export function indexedTranscript(records: UnsequencedRecord[], threadId: string): IndexedItem[] {
  const calls = knownCalls(records, threadId);
  const { replaced } = connectionsOf(records, threadId);
  return records.flatMap((record, at) =>
    itemsOf(record, threadId, { calls, records, replaced }).map((item): IndexedItem => ({ item, at })),
  );
}

function itemsOf(record: UnsequencedRecord, threadId: string, conversation: Conversation): TranscriptItem[] {
  const isRoot = threadId === ROOT_THREAD;
  if (record.kind === 'turn.created' && isRoot) {
    return [...(record.conversation?.given?.items ?? []), ...record.input.flatMap(userMessage)];
  }
  if (record.kind === 'user.steered' && isRoot) return [userItem(record.content)];
  if (record.kind === 'thread.created' && record.thread.threadId === threadId) return [userText(record.input)];
  if (record.kind === 'model.message' && record.threadId === threadId) return assistantItems(record, conversation);
  return [];
}

function userMessage(item: InputItem): TranscriptItem[] {
  return item.type === 'user.message' ? [userItem(item.content)] : [];
}

function userItem(content: UserSteered['content']): TranscriptItem {
  return typeof content === 'string' ? userText(content) : { role: 'user', content };
}

export function userText(text: string): TranscriptItem {
  return { role: 'user', content: [{ type: 'text', text }] };
}

interface Conversation {
  /** The calls of the message's thread, by their ids. */
  calls: ReadonlyMap<string, KnownCall>;
  records: UnsequencedRecord[];
  /** See `connectionsOf`. */
  replaced: ReadonlySet<UnsequencedRecord>;
}

function assistantItems(message: ModelMessage, { calls, ...conversation }: Conversation): TranscriptItem[] {
  // A model call that was cancelled or failed before its first text leaves an empty message, which providers reject.
  const { content, refusal, audio, images, toolCalls } = message;
  if (!content && !refusal && !audio && !images && toolCalls.length === 0) return misfit(message);
  const toolItems = message.toolCalls.map((call) => {
    const { result, pending, mayHaveRun } = calls.get(call.id) ?? {};
    if (result) return toolItem(call, { result, pending }, conversation);
    if (mayHaveRun) return { ...itemOf(call), content: outcomeText('unknown_outcome'), files: [] };
    const { route } = call;
    const isHeld = !pending && route.to === 'server' && (route.order !== undefined || route.startsTask === true);
    const content = pending?.unknownOutcome ?? (pending?.elicitation ? NOT_ANSWERED : isHeld ? NOT_BEGUN : NOT_DECIDED);
    return { ...itemOf(call), content, files: [] };
  });
  const isCutOff = message.finishReason === 'cancelled' || message.finishReason === 'error';
  return [
    { role: 'assistant', message: asText(message) },
    ...toolItems,
    ...(isCutOff ? [userText(CUT_OFF)] : misfit(message)),
  ];
}

/** The message with the transcript of its audio in its text. */
function asText(message: ModelMessage): ModelMessage {
  if (!message.audio) return message;
  const { audio, ...written } = message;
  return { ...written, content: [message.content, audio.transcript].filter(Boolean).join('\n') };
}

/** The message to the model after an answer that is not the JSON that the agent requires. */
function misfit({ structured }: ModelMessage): TranscriptItem[] {
  if (!structured || structured.fits) return [];
  const { problem, isAnyJson } = structured;
  const [reason, demand] = isAnyJson
    ? ['it has to be JSON', 'Answer with JSON, and with nothing else.']
    : ['it does not fit the required JSON Schema', 'Answer with JSON that fits it, and with nothing else.'];
  return [userText(`This answer is not accepted, because ${reason}:\n${problem}\n${demand}`)];
}

function toolItem(
  call: ToolCall,
  { result, pending }: { result: ToolResult; pending: PendingCall | undefined },
  { records, replaced }: Omit<Conversation, 'calls'>,
): ToolItem {
  const known = TOOL_ITEMS.get(result);
  if (known) return known;
  const item =
    'kind' in result
      ? {
          ...itemOf(call),
          content: (replaced.has(result) ? `${CONNECTION_REPLACED}\n` : '') + textOf(result, records),
          files: result.files ?? [],
          ...(result.fullText && { fullText: result.fullText }),
        }
      : { ...itemOf(call), content: executedWith(pending?.edited?.arguments, result.content), files: [] };
  TOOL_ITEMS.set(result, item);
  return item;
}

/** The text of a result for the model; for a stopped sub-agent, with the calls that it had begun. */
function textOf(result: Extract<ToolResult, { kind: 'tool.response' }>, records: UnsequencedRecord[]): string {
  const text = executedWith(result.arguments, responseText(result));
  if (result.outcome !== 'cancelled' || result.fromThread === undefined) return text;
  const begun = begunBy(result.fromThread, records);
  return begun === undefined ? text : `${text}\n${begun}`;
}

/**
 * The message keeps the arguments that the model wrote: providers sign and cache messages. So the result contains the
 * arguments with which the call ran.
 */
export function executedWith(args: string | undefined, text: string): string {
  if (args === undefined) return text;
  return `The user changed the arguments of this tool call. It ran with: ${args}\n\n${text}`;
}

function itemOf({ id: toolCallId, name }: ToolCall): Pick<ToolItem, 'role' | 'toolCallId' | 'name'> {
  return { role: 'tool', toolCallId, name };
}

function knownCalls(records: UnsequencedRecord[], threadId: string): Map<string, KnownCall> {
  const calls = new Map<string, KnownCall>();
  // The call of a result may be in a turn that is no longer read, and a later call may have the same id.
  const known = (key: CallKey) => (key.threadId === threadId ? calls.get(key.toolCallId) : undefined);
  for (const record of records) {
    if ('isLost' in record) for (const call of calls.values()) call.mayHaveRun = true;
    if (record.kind === 'model.message' && record.threadId === threadId) {
      for (const { id } of record.toolCalls) if (!calls.has(id)) calls.set(id, {});
    } else if ('calls' in record) {
      for (const pending of record.calls) Object.assign(known(pending) ?? {}, { pending });
    } else if (record.kind === 'tool.response') {
      const call = known(record);
      if (call) call.result ??= record;
    } else if (record.kind === 'turn.created') {
      for (const item of record.input) {
        if (item.type !== 'user.tool_response') continue;
        const call = known(item);
        // The answer to the question of a server is input of the call, not its result.
        if (call && !call.pending?.elicitation) call.result ??= item;
      }
    }
  }
  return calls;
}

/**
 * For each server, the connection with state of the thread's last call or, if it has made none, of the conversation's
 * last call; and the thread's results that are the first on a connection which has replaced that one. Results without a
 * connection do not count: their servers keep no state.
 */
export function connectionsOf(
  records: UnsequencedRecord[],
  threadId: string,
): { last: StatefulConnection[]; replaced: Set<UnsequencedRecord> } {
  const ofAll = new Map<string, string>();
  const own = new Map<string, string>();
  const replaced = new Set<UnsequencedRecord>();
  for (const record of records) {
    if (record.kind === 'context.compacted' && record.threadId === threadId) {
      for (const { serverId, id } of record.connections ?? []) own.set(serverId, id);
    }
    if (record.kind !== 'tool.response' || !record.connection) continue;
    const { serverId, id } = record.connection;
    if (record.threadId === threadId) {
      if ((own.get(serverId) ?? ofAll.get(serverId) ?? id) !== id) replaced.add(record);
      own.set(serverId, id);
    }
    ofAll.set(serverId, id);
  }
  const last = [...new Map([...ofAll, ...own])].map(([serverId, id]) => ({ serverId, id }));
  return { last, replaced };
}

/**
 * The connections with state on which a call to a server relies: the one of the last call before its message, of its
 * thread or else of the conversation, and those of later calls. Empty for the first call to a server.
 */
export function connectionsReliedOn(
  records: UnsequencedRecord[],
  { threadId, messageId, serverId }: { threadId: string; messageId: string; serverId: string },
): Set<string> {
  const at = records.findLastIndex((record) => record.kind === 'model.message' && record.id === messageId);
  const { last } = connectionsOf(records.slice(0, Math.max(at, 0)), threadId);
  const before = last.filter((one) => one.serverId === serverId);
  const since = records.slice(at + 1).filter((record) => record.kind === 'tool.response');
  const own = since.filter((record) => record.threadId === threadId);
  const ids = (some: typeof since) =>
    some.flatMap(({ connection }) => (connection?.serverId === serverId ? [connection.id] : []));
  const known = [...before.map(({ id }) => id), ...ids(own)];
  return new Set(known.length > 0 ? known : ids(since));
}

/** Providers accept about 128 tools at most, and each costs tokens. */
const MAX_FOUND = 64;

/**
 * The tools that the searches of a thread have found, in the order in which they were found; if they are too many, the
 * last ones. Like the transcript this is a projection of the records of a branch, so a fork has only the tools that
 * were found before it.
 */
export function foundTools(records: UnsequencedRecord[], threadId: string): FoundTool[] {
  const found = new Map<string, FoundTool>();
  for (const record of records) {
    const hasTools = record.kind === 'tool.response' || record.kind === 'context.compacted';
    if (!hasTools || record.threadId !== threadId) continue;
    for (const tool of record.foundTools ?? []) {
      const key = toolKey(tool);
      // A tool that is found again keeps its position: providers cache requests up to the first difference.
      if (!found.has(key)) found.set(key, tool);
      const [oldest] = found.keys();
      if (found.size > MAX_FOUND && oldest !== undefined) found.delete(oldest);
    }
  }
  return [...found.values()];
}

/** The key of a tool within an agent. */
export function toolKey({ server, name }: FoundTool): string {
  return JSON.stringify([server, name]);
}
