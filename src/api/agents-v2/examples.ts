import type { SessionEvent } from './wire/events.ts';
import type { SessionSummary } from './wire/list.ts';
import type { SessionResource, SessionStatus } from './wire/session.ts';

/** The examples of the API's description. */

const AT = '2026-11-21T09:30:00.000Z';

export const exampleStatus: SessionStatus = {
  status: 'completed',
  error: null,
  error_code: null,
  outcome: null,
  steps: 1,
  usage_per_model: [
    { name: 'openai/gpt-5-mini', input_tokens: 120, cached_tokens: 0, output_tokens: 8, reasoning_tokens: 0 },
  ],
  subagent_session_ids: [],
  pending_tool_calls: [],
};

export const exampleSession: SessionResource = {
  id: '0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e04',
  request: {
    agent: { name: 'order-desk', description: 'Answers questions about orders', environments: [] },
    messages: [{ type: 'user_message', message: 'Which orders are late?', caller_id: 'user' }],
  },
  status: exampleStatus,
  agent_revision: 3,
  agent_view_url: null,
  latest_answer: 'Orders 17 and 23.',
  created_at: AT,
  started_at: AT,
  finished_at: AT,
};

export const exampleEvents = [
  { type: 'AgentEvent', data: { kind: 'answer_event', answer: 'Orders 17 and 23.', outcome: null }, timestamp: AT },
  { type: 'AgentCompletionEvent', data: { reason: 'finished' }, timestamp: AT },
] satisfies SessionEvent[];

export const exampleChanges = {
  status: 'completed' as const,
  started_at: AT,
  finished_at: AT,
  error: null,
  error_code: null,
  new_events: exampleEvents,
  first_index: 4,
  answer: 'Orders 17 and 23.',
  outcome: null,
  metrics: {
    steps: 1,
    cost_per_model: [],
    input_cost: null,
    output_cost: null,
    reasoning_cost: null,
    total_cost: 0.0001,
  },
  pending_tool_calls: [],
};

export const exampleSummary: SessionSummary = {
  id: '0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e04',
  agent: 'order-desk',
  agent_revision: 3,
  status: 'completed',
  agent_view_url: null,
  first_message: { type: 'user_message', message: 'Which orders are late?', caller_id: 'user' },
  created_at: AT,
  started_at: AT,
  finished_at: AT,
  last_activity_at: AT,
  anonymized_at: null,
};
