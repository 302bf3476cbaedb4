import {
  ROOT_THREAD,
  type FullText,
  type InputItem,
  type ModelMessage,
  type StoredFile,
  type ToolCall,
  type UnsequencedRecord,
  type UserContentPart,
  type UserSteered,
  type FoundTool,
} from './records.ts';
import { begunBy, CUT_OFF } from './stopped-work.ts';
import { callKey, responseText } from './tool-records.ts';

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

/** The result of a call whose server had asked the user, on such a branch. */
const NOT_ANSWERED =
  'This tool call asked the user for input that was not given in this conversation: it was not completed here.';

/** A record or an input item that holds a tool's result. */
type ToolResult =
  | Extract<UnsequencedRecord, { kind: 'tool.response' }>
  | Extract<InputItem, { type: 'user.tool_response' }>;

/** The items of results. Each is created once, so that values derived from an item can be cached with it. */
const TOOL_ITEMS = new WeakMap<ToolResult, ToolItem>();

/**
 * The conversation of a thread: the records of the turns of a chain, oldest first, and of the turn in progress. That of
 * a sub-agent begins with its task, and has nothing of its parent's.
 *
 * Providers reject a tool call that is not directly followed by exactly one result. So the result of each call is
 * looked up in the whole chain (an approved call runs in a later turn than the one that requested it), and a call
 * without a result gets one that says that it was not executed.
 */
export function transcript(records: UnsequencedRecord[], threadId: string): TranscriptItem[] {
  return placedTranscript(records, threadId).map(({ item }) => item);
}

/** An item of a conversation, and the index of the record that it is of. The results of calls are of their message. */
export interface PlacedItem {
  item: TranscriptItem;
  at: number;
}

export function placedTranscript(records: UnsequencedRecord[], threadId: string): PlacedItem[] {
  const asked = callsThatAsked(records);
  const results = toolResults(records, threadId, asked);
  return records.flatMap((record, at) =>
    itemsOf(record, threadId, { results, asked, records }).map((item): PlacedItem => ({ item, at })),
  );
}

function itemsOf(record: UnsequencedRecord, threadId: string, conversation: Conversation): TranscriptItem[] {
  const isRoot = threadId === ROOT_THREAD;
  if (record.kind === 'turn.created' && isRoot) return record.input.flatMap(userMessage);
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
  /** Those of the message's thread, by the ids of their calls. */
  results: Map<string, ToolResult>;
  asked: Set<string>;
  records: UnsequencedRecord[];
}

function assistantItems(message: ModelMessage, { results, asked, records }: Conversation): TranscriptItem[] {
  // A model call that was cancelled or failed before its first text leaves an empty message, which providers reject.
  if (!message.content && !message.refusal && message.toolCalls.length === 0) return misfit(message);
  const toolItems = message.toolCalls.map((call) => {
    const result = results.get(call.id);
    if (result) return toolItem(call, result, records);
    const hasAsked = asked.has(callKey({ threadId: message.threadId, toolCallId: call.id }));
    return { ...itemOf(call), content: hasAsked ? NOT_ANSWERED : NOT_DECIDED, files: [] };
  });
  const isCutOff = message.finishReason === 'cancelled' || message.finishReason === 'error';
  return [{ role: 'assistant', message }, ...toolItems, ...(isCutOff ? [userText(CUT_OFF)] : []), ...misfit(message)];
}

/** What the model is told of an answer that does not fit the agent's JSON Schema. */
function misfit({ structured }: ModelMessage): TranscriptItem[] {
  if (!structured || structured.fits) return [];
  return [
    userText(
      `This answer is not accepted, because it does not fit the required JSON Schema:\n${structured.problem}\n` +
        'Answer with JSON that fits it, and with nothing else.',
    ),
  ];
}

function toolItem(call: ToolCall, result: ToolResult, records: UnsequencedRecord[]): ToolItem {
  const known = TOOL_ITEMS.get(result);
  if (known) return known;
  const item =
    'kind' in result
      ? {
          ...itemOf(call),
          content: textOf(result, records),
          files: result.files ?? [],
          ...(result.fullText && { fullText: result.fullText }),
        }
      : { ...itemOf(call), content: result.content, files: [] };
  TOOL_ITEMS.set(result, item);
  return item;
}

/** The text of a result for the model; with what a sub-agent had begun that was stopped. */
function textOf(result: Extract<ToolResult, { kind: 'tool.response' }>, records: UnsequencedRecord[]): string {
  const text = withArguments(result);
  if (result.outcome !== 'cancelled' || result.fromThread === undefined) return text;
  const begun = begunBy(result.fromThread, records);
  return begun === undefined ? text : `${text}\n${begun}`;
}

/**
 * The message keeps the arguments that the model wrote: providers sign and cache messages. So the result says with which
 * others the call ran.
 */
function withArguments(result: Extract<ToolResult, { kind: 'tool.response' }>): string {
  const text = responseText(result);
  if (result.arguments === undefined) return text;
  return `The user changed the arguments of this tool call. It ran with: ${result.arguments}\n\n${text}`;
}

function itemOf({ id: toolCallId, name }: ToolCall): Pick<ToolItem, 'role' | 'toolCallId' | 'name'> {
  return { role: 'tool', toolCallId, name };
}

/** The calls whose servers have asked the user. The answers are input of the calls, not their results. */
function callsThatAsked(records: UnsequencedRecord[]): Set<string> {
  const pending = records.flatMap((record) => ('calls' in record ? record.calls : []));
  return new Set(pending.filter(({ elicitation }) => elicitation).map(callKey));
}

function toolResults(
  records: UnsequencedRecord[],
  threadId: string,
  asked: ReadonlySet<string>,
): Map<string, ToolResult> {
  const results = new Map<string, ToolResult>();
  // The call of a result may be in a turn that is not read any more, and a later call may have the same id.
  const called = new Set<string>();
  const add = (result: ToolResult) => {
    const { toolCallId } = result;
    if (result.threadId === threadId && called.has(toolCallId) && !results.has(toolCallId)) {
      results.set(toolCallId, result);
    }
  };
  for (const record of records) {
    if (record.kind === 'model.message' && record.threadId === threadId) {
      for (const { id } of record.toolCalls) called.add(id);
    }
    if (record.kind === 'tool.response') add(record);
    if (record.kind !== 'turn.created') continue;
    for (const item of record.input) {
      if (item.type === 'user.tool_response' && !asked.has(callKey(item))) add(item);
    }
  }
  return results;
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
