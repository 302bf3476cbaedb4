import { z } from 'zod';

/** The events of a session. Their position in the session's list is their identity: they have no id. */

/** A call of a tool, as the model has requested it. */
export interface ToolCallRequest {
  tool_name: string;
  args: Record<string, unknown>;
  id: string;
}

export interface ModelCost {
  name: string;
  input_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  reasoning_tokens: number;
  input_cost: number | null;
  output_cost: number | null;
  reasoning_cost: number | null;
  total_cost: number | null;
}

/** Costs are in USD; null if they are unknown. */
export interface Metrics {
  steps: number;
  cost_per_model: ModelCost[];
  input_cost: number | null;
  output_cost: number | null;
  reasoning_cost: number | null;
  total_cost: number | null;
}

export type ActiveState = 'running' | 'idle' | 'awaiting_tool_results';

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
  MetricsUpdateEvent: { metrics: Metrics };
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
