import type { Compacted } from '../../core/compacted.ts';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import type { IndexedItem, TranscriptItem } from '../../core/transcript.ts';
import { inputCharacters, itemCharacters, TOKEN_CHARACTERS } from '../../models/input-breakdown.ts';
import type { ModelRequest } from '../../models/provider.ts';
import type { EarlierReport } from '../../models/truncated-input.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { isClearable } from './compacted-conversation.ts';

/** The threshold if neither the agent names one nor the provider file the size of the model's context. */
const DEFAULT_THRESHOLD_TOKENS = 50_000;

/** The share of a model's context above which a conversation is compacted: the rest is for the model's message. */
const SHARE_OF_CONTEXT = 0.8;

/** The largest share of the threshold that is kept word for word after a summary. */
const KEPT_SHARE = 1 / 3;

/** Results are only cleared if this brings the next model call below this share of the threshold, which leaves room. */
const CLEARED_SHARE = 3 / 4;

/** A summary is not worth a model call if it adds less than this share to the last one. */
const MIN_SUMMARIZED_SHARE = 1 / 10;

/** The number of last steps of a turn whose results are not cleared, since the model is working with them. */
const STEPS_WITH_RESULTS = 2;

/** The compaction of a conversation before the next model call. */
export interface CompactionPlan {
  /** As in the record. */
  through: number;
  tokensBefore: number;
  /** Without the summary. */
  tokensAfter: number;
  /** The items to summarize; undefined if the results of tools are cleared instead. */
  summarized?: TranscriptItem[];
}

interface Situation {
  /** The conversation as the model would get it, with the indexes of its items in `records`. */
  conversation: IndexedItem[];
  records: UnsequencedRecord[];
  compacted: Compacted;
  /** The input of the next model call. */
  tokens: number;
  threshold: number;
  /** The model has rejected the conversation as too long, whatever its estimated size is. */
  isTooLong: boolean;
}

/**
 * The number of input tokens above which an agent's conversation is compacted; undefined: it is never compacted.
 * `rejectedTokens`: a size that the model rejects or truncates, so that even the author's threshold is too high.
 */
export function compactionThreshold(
  { config }: AgentSpec,
  contextTokens: number | undefined,
  rejectedTokens = Infinity,
): number | undefined {
  const { enabled, compaction_threshold_tokens: own } = config?.context_management?.compaction ?? {};
  if (enabled === false) return undefined;
  const wanted = own ?? (contextTokens === undefined ? DEFAULT_THRESHOLD_TOKENS : shareOf(contextTokens));
  return Math.min(wanted, shareOf(rejectedTokens));
}

function shareOf(contextTokens: number): number {
  return Math.floor(contextTokens * SHARE_OF_CONTEXT);
}

/**
 * The input tokens of a request: the tokens that the provider has reported for the last message, and an estimate of the
 * items since. Without such a report, all are estimated.
 */
export function inputTokens(request: ModelRequest, earlier: EarlierReport | undefined): number {
  if (earlier) {
    const { usage, added } = earlier;
    return usage.inputTokens + usage.outputTokens - usage.reasoningTokens + tokensOf(added);
  }
  return Math.ceil(Object.values(inputCharacters(request)).reduce((sum, one) => sum + one, 0) / TOKEN_CHARACTERS);
}

function tokensOf(items: TranscriptItem[]): number {
  return Math.ceil(items.reduce((sum, item) => sum + itemCharacters(item), 0) / TOKEN_CHARACTERS);
}

/**
 * Decides whether and how a conversation is compacted before the next model call; undefined if it is short enough, or
 * if nothing can be gained. It is split before a message of the model, so that calls stay with their results, and in
 * the current turn, so that later turns need no turn before it. Each summary replaces more records than the last one,
 * so a turn has a limited number of summaries.
 */
export function planCompaction(situation: Situation): CompactionPlan | undefined {
  const { tokens, threshold, isTooLong } = situation;
  if (isTooLong) return planSummary(situation);
  if (tokens <= threshold) return undefined;
  return planClearing(situation) ?? planSummary(situation);
}

/** Clears the results of all but the last steps, if this shortens the conversation enough. */
function planClearing({ conversation, records, compacted, tokens, threshold }: Situation): CompactionPlan | undefined {
  const begin = beginOfTurn(records);
  const steps = messagesSince(conversation, begin);
  const boundary = steps.length > STEPS_WITH_RESULTS ? (steps.at(-STEPS_WITH_RESULTS) ?? begin) : begin;
  const cleared = conversation.filter(({ item, at }) => at >= compacted.cleared && at < boundary && isClearable(item));
  const tokensAfter = tokens - tokensOf(cleared.map(({ item }) => item));
  if (tokensAfter > threshold * CLEARED_SHARE) return undefined;
  return { through: boundary - begin, tokensBefore: tokens, tokensAfter };
}

/** Summarizes as little as possible, but enough that the kept rest is far below the threshold. */
function planSummary(situation: Situation): CompactionPlan | undefined {
  const { conversation, records, compacted, tokens, threshold, isTooLong } = situation;
  const begin = beginOfTurn(records);
  const between = (from: number, to: number) =>
    conversation.filter(({ at }) => at >= from && at < to).map(({ item }) => item);
  const isNew = (boundary: number) => between(compacted.from, boundary).length > 0;
  const messages = messagesSince(conversation, begin);
  // If the rest that the last summary kept is too long, everything is summarized, also the user's message.
  const isLastResort = isTooLong && compacted.last > (messages.at(-1) ?? begin);
  const starts = [...(isLastResort ? [] : [begin, ...messages]), ...(isTooLong ? [records.length] : [])].filter(isNew);
  const boundary =
    starts.find((start) => tokensOf(between(start, Infinity)) <= threshold * KEPT_SHARE) ?? starts.at(-1);
  if (boundary === undefined) return undefined;
  // Instructions alone may exceed the threshold: summarizing a summary again would gain nothing.
  const gain = tokensOf(between(compacted.from, boundary));
  if (!isTooLong && gain < threshold * MIN_SUMMARIZED_SHARE) return undefined;
  const summarized = between(-1, boundary);
  const tokensAfter = Math.max(0, tokens - tokensOf(summarized));
  return { through: boundary - begin, tokensBefore: tokens, tokensAfter, summarized };
}

/** The index of the first record of the turn in progress. */
function beginOfTurn(records: UnsequencedRecord[]): number {
  return Math.max(
    0,
    records.findLastIndex(({ kind }) => kind === 'turn.created'),
  );
}

/** The indexes of the model's messages since an index. */
function messagesSince(conversation: IndexedItem[], begin: number): number[] {
  return conversation.flatMap(({ item, at }) => (item.role === 'assistant' && at >= begin ? [at] : []));
}
