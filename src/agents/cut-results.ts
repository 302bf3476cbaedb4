import type { ToolItem, TranscriptItem } from '../core/transcript.ts';
import { truncateMiddle } from '../core/text.ts';
import { memoized } from '../lib/memoized.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { READ_TOOL_RESPONSE } from '../tools/read-tool-response.ts';

/** A longer tool result (in JSON bytes) is cut for the model, unless the agent disables that. */
const LARGE_RESULT_BYTES = 64 * 1024;

/** The conversation as the model sees it: beginning and end of large results, with a note on how to read the rest. */
export function withCutResults(spec: AgentSpec, conversation: TranscriptItem[]): TranscriptItem[] {
  return cutsResults(spec) ? conversation.map((item) => (item.role === 'tool' ? cutItem(item) : item)) : conversation;
}

/** Whether an agent sees the beginning of what is long, and reads the rest with a tool. */
export function cutsResults({ config }: AgentSpec): boolean {
  return config?.context_management?.large_tool_response?.enabled !== false;
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
