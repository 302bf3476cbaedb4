import { z } from 'zod';

/** The events of a session. Their position in the session's list is their identity: they have no id. */

/** A call of a tool, as the model has requested it. */
export const toolCallRequest = z.object({
  tool_name: z.string(),
  args: z.record(z.string(), z.unknown()),
  id: z.string(),
});

export const modelUsage = z.object({
  name: z.string(),
  input_tokens: z.int(),
  cached_tokens: z.int(),
  output_tokens: z.int(),
  reasoning_tokens: z.int(),
});

/** In USD; null if it is unknown. */
const cost = z.number().nullable();
const costs = { input_cost: cost, output_cost: cost, reasoning_cost: cost, total_cost: cost };

export const metrics = z.object({ steps: z.int(), cost_per_model: z.array(modelUsage.extend(costs)), ...costs });

export type ToolCallRequest = z.infer<typeof toolCallRequest>;
export type SessionMetrics = z.infer<typeof metrics>;
export type ModelCost = SessionMetrics['cost_per_model'][number];

type ActiveState = 'running' | 'idle' | 'awaiting_tool_results';

type AgentEventData =
  | {
      kind: 'message_event';
      caller_id: string;
      content: (string | { type: 'url'; source: string; media_type: string })[];
    }
  | {
      kind: 'policy_event';
      reasoning_content: string | null;
      content: string | null;
      tool_reqs: ToolCallRequest[];
      validation_errors: string[];
    }
  | {
      kind: 'tool_result';
      tool_req: ToolCallRequest;
      result: unknown;
      truncated: boolean;
      output_artifact_path: string | null;
    }
  | { kind: 'error_event'; error: string; origin: string; tool_req: ToolCallRequest | null }
  | { kind: 'answer_event'; answer: unknown; outcome: null }
  | { kind: 'flow_event'; flow: 'pause' | 'resume' | 'force_answer'; origin: string };

interface EventData {
  RequestStartEvent: Record<string, never>;
  RequestStartDispatchedEvent: { status: string };
  AgentStartedEvent: Record<string, never>;
  AgentRunStatusChangeEvent: { status: 'running' | 'paused' };
  ActiveStateChangeEvent: { state: ActiveState; pending_tool_calls: ToolCallRequest[] | null };
  MetricsUpdateEvent: { metrics: SessionMetrics };
  AgentCompletionEvent: { reason: 'finished' | 'stopped' | 'timed_out' };
  AgentErrorEvent: { error: string; trace: string; info: { code: string } | null };
  AgentEvent: AgentEventData;
}

export type EventType = keyof EventData;

export type SessionEvent = { [T in EventType]: { type: T; data: EventData[T]; timestamp: string } }[EventType];

/** The schema for the documentation: the shapes above, as one. */
export const sessionEvent = z
  .looseObject({
    type: z.string(),
    data: z.looseObject({}).describe('depends on the type; of an AgentEvent on its kind'),
    timestamp: z.iso.datetime(),
  })
  .meta({ id: 'SessionEvent' });
