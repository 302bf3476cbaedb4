import type { Reader } from '../../../auth/rights.ts';
import type { TurnDone } from '../../../core/records.ts';
import { dollars } from '../../../lib/dollars.ts';
import type { WireTurnDoneState, WireTurnMetrics } from './events.ts';
import { shortened, outputJson } from './messages-to-wire.ts';
import { actionToWire } from './required-actions-to-wire.ts';
import type { Bare, NoFields } from './no-fields.ts';

/** The state of a turn that has not ended; `position` is its position in the queue, if it waits there. */
export function runningState(position?: number): { status: 'running'; queued?: { position: number } } {
  return { status: 'running', ...(position !== undefined && { queued: { position } }) };
}

export function stateToWire(
  { at, end, limit, ...totals }: Omit<TurnDone, 'kind' | 'id'>,
  reader: Reader,
): WireTurnDoneState {
  const ended = { completed_at: at, metrics: metrics(totals), ...(limit && { limit }) };
  switch (end.status) {
    case 'done': {
      // The next turn continues the threads, and runs the calls.
      const { status, output, requiredActions, held: _, threads: __, ...rest } = end;
      rest satisfies NoFields;
      return {
        status,
        output: output && shortened(output),
        ...(output && outputJson(output)),
        required_actions: requiredActions.map((action) => actionToWire(action, reader)),
        ...ended,
      };
    }
    case 'cancelled': {
      const { status, reason, ...rest } = end;
      rest satisfies NoFields;
      return { status, reason, ...ended };
    }
    case 'error': {
      const { status, message, code, modelFailure: _, ...rest } = end;
      rest satisfies NoFields;
      // The other codes are not part of this API: its clients may take any code for a budget that was reached.
      return { status, message, ...(code === 'budget_exceeded' && { code }), ...ended };
    }
  }
}

function metrics(totals: Omit<Bare<TurnDone>, 'kind' | 'id' | 'at' | 'end' | 'limit'>): WireTurnMetrics {
  const { usage, modelCalls, toolCalls, waitedMs, workedMs: _, ...more } = totals;
  more satisfies NoFields;
  const {
    inputTokens,
    outputTokens,
    cacheReadTokens,
    cacheWriteTokens,
    reasoningTokens,
    unreportedAttempts = 0,
    costInUsd,
    media: __,
    ...rest
  } = usage;
  rest satisfies NoFields;
  return {
    total_input_tokens: inputTokens,
    total_output_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
    total_cache_read_tokens: cacheReadTokens,
    total_cache_write_tokens: cacheWriteTokens,
    total_reasoning_tokens: reasoningTokens,
    ...(costInUsd !== undefined && { total_cost_in_usd: dollars(costInUsd) }),
    model_calls: modelCalls,
    tool_calls: toolCalls,
    waited_ms: waitedMs,
    unreported_attempts: unreportedAttempts,
  };
}
