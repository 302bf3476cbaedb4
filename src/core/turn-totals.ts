import type { UnsequencedRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import { addUsage, NO_USAGE, type Usage } from './records/usage.ts';

/** What a turn has used, with its sub-agents. */
export interface TurnTotals {
  usage: Usage;
  /** The messages and summaries of models, not those of code. Attempts at one are one call. */
  modelCalls: number;
  /** The calls in these messages, including those that did not run. */
  toolCalls: number;
}

export const NO_TOTALS: TurnTotals = { usage: NO_USAGE, modelCalls: 0, toolCalls: 0 };

/** Adds a record of the log. */
export function addRecord(totals: TurnTotals, record: UnsequencedRecord): TurnTotals {
  if (record.kind === 'model.message') return addMessage(totals, record);
  if (record.kind !== 'context.compacted') return totals;
  // Clearing results takes no model call.
  const calls = record.summary === undefined ? 0 : 1;
  return { ...totals, usage: addUsage(totals.usage, record.usage), modelCalls: totals.modelCalls + calls };
}

function addMessage(
  { usage: before, modelCalls, toolCalls }: TurnTotals,
  { usage, toolCalls: calls, fromCode }: Pick<ModelMessage, 'usage' | 'toolCalls' | 'fromCode'>,
): TurnTotals {
  return {
    usage: addUsage(before, usage),
    modelCalls: modelCalls + (fromCode ? 0 : 1),
    toolCalls: toolCalls + calls.length,
  };
}
