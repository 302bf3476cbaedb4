import type { PlacedItem, ToolItem } from '../core/transcript.ts';
import { truncateMiddle } from '../core/text.ts';
import { memoized } from '../lib/memoized.ts';
import { cutsResults, type AgentSpec } from '../spec/agent-spec.ts';
import { READ_TOOL_RESPONSE } from '../tools/read-tool-response.ts';

/** A longer tool result (in JSON bytes) is cut for the model, unless the agent disables that. */
const LARGE_RESULT_BYTES = 64 * 1024;

/** The conversation as the model sees it: beginning and end of large results, with a note on how to read the rest. */
export function withCutResults(spec: AgentSpec, conversation: PlacedItem[]): PlacedItem[] {
  if (!cutsResults(spec)) return conversation;
  return conversation.map(({ item, at }) => ({ item: item.role === 'tool' ? cutItem(item) : item, at }));
}

/** Memoized, since every model call contains all results before it. A result that fits is returned itself. */
const cutItem = memoized((item: ToolItem): ToolItem => {
  const { content, fullText, toolCallId } = item;
  const total = fullText?.characters ?? content.length;
  const note = (omitted: number, from: number) =>
    `[${omitted + total - content.length} of the ${total} characters of this result are left out here, from character ` +
    `${from} on; ${READ_TOOL_RESPONSE.name} reads and searches them: tool_call_id ${toolCallId}]`;
  const cut = truncateMiddle(content, LARGE_RESULT_BYTES, note);
  return cut === content ? item : { ...item, content: cut };
});
