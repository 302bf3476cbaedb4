import type { AskModel, ModelCallPart, ModelStep, SizedConversation } from '../../agents/model-call-part.ts';
import type { WithoutId } from '../../core/records/base.ts';
import type { ContextCompacted } from '../../core/records/threads.ts';
import { truncateMiddle } from '../../core/text.ts';
import { connectionsOf, foundTools, type IndexedItem, type ToolItem } from '../../core/transcript.ts';
import { memoized } from '../../lib/memoized.ts';
import { TOKEN_CHARACTERS } from '../../models/input-breakdown.ts';
import type { ModelTarget } from '../../models/providers.ts';
import { isBy } from '../../models/truncated-input.ts';
import { cutsResults, type AgentSpec } from '../../spec/agent-spec.ts';
import { READ_TOOL_RESPONSE } from '../../tools/read-tool-response.ts';
import { withCompacted } from './compacted-conversation.ts';
import { compactionThreshold, inputTokens, planCompaction, type CompactionPlan } from './compaction.ts';
import { summarize } from './summarize.ts';

/** Replaces the compacted part of a conversation, and compacts the conversation if it is too long for the model. */
export const COMPACTION_PART: ModelCallPart = {
  conversation: (items, { spec, compacted }) => ({ items: withCutResults(spec, withCompacted(items, compacted)) }),
  compaction: ({ conversation, request, earlier, target }, step) => {
    const { spec, records, compacted } = step;
    const { rejected } = step.call;
    const tokens = inputTokens(request, earlier);
    const isTooLong =
      rejected !== undefined &&
      (rejected.isTooLong || (tokens > SHORT_TOKENS && wasAccepted(conversation, compacted.last, target)));
    const rejectedTokens = isTooLong ? (rejected.contextTokens ?? tokens) : target.shownTokens;
    const threshold = compactionThreshold(spec, target.contextTokens, rejectedTokens);
    if (threshold === undefined) return undefined;
    const plan = planCompaction({ conversation, records, compacted, tokens, threshold, isTooLong });
    return plan && ((ask) => compact({ ...plan, threshold }, request, step, ask));
  },
};

/** No model rejects so few tokens for their number, so the rejection has another cause. */
const SHORT_TOKENS = 2_000;

/**
 * Whether the model has accepted a shorter form of the conversation since the last compaction. It may then reject the
 * length now, although its error does not name it.
 */
function wasAccepted(shown: IndexedItem[], compactedAt: number, target: ModelTarget): boolean {
  return shown.some(({ item, at }) => item.role === 'assistant' && at > compactedAt && isBy(item.message, target));
}

async function compact(
  { through, tokensBefore, tokensAfter, summarized, threshold }: CompactionPlan & { threshold: number },
  base: SizedConversation['request'],
  { spec, records, call: { threadId, subAgent } }: ModelStep,
  ask: AskModel,
): Promise<WithoutId<ContextCompacted>> {
  const summary = summarized && (await summarize(summarized, { base, partTokens: threshold, ask }));
  const found = foundTools(records, threadId);
  const connections = connectionsOf(records, threadId).last;
  // The clients of a registered sub-agent are those of the agent that has started it.
  const isShown = spec.config?.pause === 'wait' && subAgent?.agent === undefined;
  return {
    kind: 'context.compacted',
    at: new Date().toISOString(),
    threadId,
    through,
    ...(summary !== undefined && { summary }),
    tokensBefore,
    tokensAfter: tokensAfter + Math.ceil((summary?.length ?? 0) / TOKEN_CHARACTERS),
    ...(found.length > 0 && { foundTools: found }),
    ...(connections.length > 0 && { connections }),
    ...(isShown && { isShown }),
  };
}

/** A longer tool result (in JSON bytes) is cut for the model, unless the agent disables that. */
const LARGE_RESULT_BYTES = 64 * 1024;

/** The conversation as the model sees it: beginning and end of large results, with a note on how to read the rest. */
export function withCutResults(spec: AgentSpec, conversation: IndexedItem[]): IndexedItem[] {
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
