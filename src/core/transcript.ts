import { callKey, responseText } from './projection.ts';
import type {
  InputItem,
  ModelMessage,
  StoredFile,
  ToolCall,
  UnsequencedRecord,
  UserContentPart,
  FoundTool,
} from './records.ts';

/** A conversation as a model is given it: neutral, for a provider's adapter to put into its own words. */
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
}

/** Stands for the result of a call that a paused turn asked for, on a branch that went on without it. */
const NOT_DECIDED = 'Nobody decided on this tool call in this conversation: it was not executed here.';

/** A record or an input item that holds a tool's result. */
type ToolResult =
  | Extract<UnsequencedRecord, { kind: 'tool.response' }>
  | Extract<InputItem, { type: 'user.tool_response' }>;

/** The items made of results: each is made once, so that what is derived from an item can be kept with it. */
const TOOL_ITEMS = new WeakMap<ToolResult, ToolItem>();

/**
 * The conversation of a thread: the records of the turns of a chain, oldest first, and of the turn in progress.
 *
 * Providers refuse a tool call without exactly one result right behind it. So the results are looked up for each call,
 * wherever in the chain they stand (an approved call runs in a later turn than the one that asked), and a call without
 * one is answered as not executed here.
 */
export function transcript(records: UnsequencedRecord[], threadId: string): TranscriptItem[] {
  const results = toolResults(records, threadId);
  const items: TranscriptItem[] = [];
  for (const record of records) {
    if (record.kind === 'turn.created') items.push(...record.input.flatMap(userMessage));
    if (record.kind === 'model.message' && record.threadId === threadId) items.push(...answered(record, results));
  }
  return items;
}

function userMessage(item: InputItem): TranscriptItem[] {
  if (item.type !== 'user.message') return [];
  const { content } = item;
  return [{ role: 'user', content: typeof content === 'string' ? [{ type: 'text', text: content }] : content }];
}

function answered(message: ModelMessage, results: Map<string, ToolResult>): TranscriptItem[] {
  // A call that was cancelled or broke before it said anything leaves an empty message, which providers refuse.
  if (!message.content && !message.refusal && message.toolCalls.length === 0) return [];
  const { threadId } = message;
  const toolItems = message.toolCalls.map((call) => {
    const result = results.get(callKey({ threadId, toolCallId: call.id }));
    return result ? toolItem(call, result) : { ...itemOf(call), content: NOT_DECIDED, files: [] };
  });
  return [{ role: 'assistant', message }, ...toolItems];
}

function toolItem(call: ToolCall, result: ToolResult): ToolItem {
  const known = TOOL_ITEMS.get(result);
  if (known) return known;
  const item =
    'kind' in result
      ? { ...itemOf(call), content: responseText(result), files: result.files ?? [] }
      : { ...itemOf(call), content: result.content, files: [] };
  TOOL_ITEMS.set(result, item);
  return item;
}

function itemOf({ id: toolCallId, name }: ToolCall): Pick<ToolItem, 'role' | 'toolCallId' | 'name'> {
  return { role: 'tool', toolCallId, name };
}

function toolResults(records: UnsequencedRecord[], threadId: string): Map<string, ToolResult> {
  const results = new Map<string, ToolResult>();
  const add = (result: ToolResult) => {
    if (result.threadId === threadId && !results.has(callKey(result))) results.set(callKey(result), result);
  };
  for (const record of records) {
    if (record.kind === 'tool.response') add(record);
    if (record.kind !== 'turn.created') continue;
    for (const item of record.input) if (item.type === 'user.tool_response') add(item);
  }
  return results;
}

/** Providers take some 128 tools at most, and every one costs tokens. */
const MAX_FOUND = 64;

/**
 * The tools that a thread has found by searching, in the order in which it found them; of very many the last. Like the
 * transcript this is a projection of the records of its branch, so a fork knows what was found before it, and no more.
 */
export function foundTools(records: UnsequencedRecord[], threadId: string): FoundTool[] {
  const found = new Map<string, FoundTool>();
  for (const record of records) {
    if (record.kind !== 'tool.response' || record.threadId !== threadId) continue;
    for (const tool of record.foundTools ?? []) {
      const key = toolKey(tool);
      // One that is found again keeps its place: providers cache what they are sent up to the first difference.
      if (!found.has(key)) found.set(key, tool);
      const [oldest] = found.keys();
      if (found.size > MAX_FOUND && oldest !== undefined) found.delete(oldest);
    }
  }
  return [...found.values()];
}

/** Of a tool within an agent. */
export function toolKey({ server, name }: FoundTool): string {
  return JSON.stringify([server, name]);
}
