import type { Reader } from '../../../auth/rights.ts';
import type { TurnDone } from '../../../core/records/turn.ts';
import { dollars } from '../../../lib/dollars.ts';
import { fieldsToWire } from '../../http/wire-fields.ts';
import { turnMetrics, type WireTurnDoneState } from './events.ts';
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
      const { status, output, requiredActions, held: _, threads: __, endedBy, ...rest } = end;
      rest satisfies NoFields;
      return {
        status,
        output: output && shortened(output),
        ...(output && outputJson(output)),
        required_actions: requiredActions.map((action) => actionToWire(action, reader)),
        ...(endedBy && { ended_by: endedBy }),
        ...ended,
      };
    }
    case 'cancelled': {
      const { status, reason, phase, ...rest } = end;
      rest satisfies NoFields;
      return { status, reason, ...(phase && { phase }), ...ended };
    }
    case 'error': {
      const { status, message, code, modelFailure: _, ...rest } = end;
      rest satisfies NoFields;
      // The other codes are not part of this API, whose clients may interpret any code as a budget that was reached.
      return { status, message, ...(code === 'budget_exceeded' && { code }), ...ended };
    }
  }
}

function metrics(totals: Omit<Bare<TurnDone>, 'kind' | 'id' | 'at' | 'end' | 'limit'>) {
  const { usage, workedMs: _, ...fields } = totals;
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens, ...more } = usage;
  const { unreportedAttempts = 0, costInUsd, media: __, ...rest } = more;
  rest satisfies NoFields;
  return fieldsToWire(turnMetrics, {
    ...fields,
    unreportedAttempts,
    totalInputTokens: inputTokens,
    totalOutputTokens: outputTokens,
    totalTokens: inputTokens + outputTokens,
    totalCacheReadTokens: cacheReadTokens,
    totalCacheWriteTokens: cacheWriteTokens,
    totalReasoningTokens: reasoningTokens,
    totalCostInUsd: costInUsd && dollars(costInUsd),
  });
}
