import type { Usage } from '../../../core/records.ts';
import type { Span } from '../../../core/timeline.ts';
import { dollars } from '../../../lib/dollars.ts';
import { calledToWire } from './activities-to-wire.ts';
import type { NoFields } from './no-fields.ts';
import { subjectToWire } from './subject-to-wire.ts';
import type { WireSpan } from './timeline.ts';

export function spanToWire(span: Span): WireSpan {
  const { kind, threadId, scheduledAt, startedAt, endedAt, isOpen = false, messageId, toolCallId, ...how } = span;
  const { title, attempt, worker, outcome, failure, reason, usage, ...more } = how;
  const { waitsFor, waitedFor, startedBy, endedBy, provider, model, address, server, tool, ...rest } = more;
  rest satisfies NoFields;
  return {
    kind,
    thread_id: threadId,
    ...(scheduledAt !== undefined && { scheduled_at: scheduledAt }),
    started_at: startedAt ?? null,
    ended_at: endedAt ?? null,
    pending: isOpen,
    ...(messageId !== undefined && { message_id: messageId }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    ...(title !== undefined && { title }),
    ...(attempt !== undefined && { attempt }),
    ...(worker !== undefined && { worker }),
    ...(outcome !== undefined && { outcome }),
    ...(failure !== undefined && { failure }),
    ...(reason !== undefined && { reason }),
    ...calledToWire({
      ...(provider !== undefined && { provider }),
      ...(model !== undefined && { model }),
      ...(address !== undefined && { address }),
      ...(server !== undefined && { server }),
      ...(tool !== undefined && { tool }),
    }),
    ...(usage && usageToWire(usage)),
    ...(waitsFor !== undefined && { waits_for: waitsFor }),
    ...(waitedFor !== undefined && { waited_for: waitedFor }),
    ...(startedBy && { started_by: subjectToWire(startedBy) }),
    ...(endedBy && { ended_by: subjectToWire(endedBy) }),
  };
}

function usageToWire({ inputTokens, outputTokens, costInUsd }: Usage): Pick<WireSpan, 'tokens' | 'cost_in_usd'> {
  return {
    tokens: { input: inputTokens, output: outputTokens },
    ...(costInUsd !== undefined && { cost_in_usd: dollars(costInUsd) }),
  };
}
