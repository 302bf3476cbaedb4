import type { Compacted } from '../../core/compacted.ts';
import { userText, type IndexedItem, type ToolItem, type TranscriptItem } from '../../core/transcript.ts';
import { memoized } from '../../lib/memoized.ts';

const SUMMARY_NOTE =
  'The conversation so far was summarized, because it had become too long. Continue with what comes next, or with what ' +
  'the summary says is to be done. The summary:';

/** The conversation as the model gets it: the summary, then the items after it. */
export function withCompacted(conversation: IndexedItem[], { from, cleared, summary }: Compacted): IndexedItem[] {
  const rest = conversation
    .filter(({ at }) => at >= from)
    .map(({ item, at }) => ({ item: at < cleared ? clearedItem(item) : item, at }));
  if (summary === undefined) return rest;
  return [{ item: userText(`${SUMMARY_NOTE}\n\n${summary}`), at: from - 1 }, ...rest];
}

/** A shorter result costs about as much as the note. */
const MIN_CLEARED = 500;

/** Whether clearing an item would make it smaller. */
export function isClearable(item: TranscriptItem): item is ToolItem {
  return item.role === 'tool' && (item.content.length > MIN_CLEARED || item.files.length > 0);
}

function clearedItem(item: TranscriptItem): TranscriptItem {
  return isClearable(item) ? clear(item) : item;
}

/** Memoized, so that values derived from an item can be cached with it. */
const clear = memoized(({ role, toolCallId, name, content }: ToolItem): ToolItem => {
  const note = `[This result of ${content.length} characters was cleared to save space: tool_call_id ${toolCallId}]`;
  return { role, toolCallId, name, content: note, files: [] };
});
