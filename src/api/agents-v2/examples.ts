import type { ScheduleResource, ScheduleRunResource } from './wire/schedule.ts';
import type { Skill } from './wire/agent.ts';
import type { Environment } from './wire/environment.ts';
import type { SessionEvent } from './wire/events.ts';
import type { SessionSummary } from './wire/list.ts';
import type { SessionRequest, SessionResource, SessionStatus } from './wire/session.ts';
import type { WebhookRecord } from './wire/webhooks.ts';

/** The examples of the API's description. */

const AT = '2026-11-21T09:30:00.000Z';

export const exampleRequest: SessionRequest = {
  agent: 'order-desk',
  messages: 'Which orders are late?',
  delete_after_min: 43_200,
  delete_screenshot_after_min: 43_200,
  queue: true,
  overrides: {},
};

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

export const exampleWebhook: WebhookRecord = {
  id: 'whk_01kac7x2m4b8d6f0h3k5p9r1tv',
  url: 'https://example.com/hooks/sessions',
  enabled_events: ['*'],
  description: 'Tells the order desk',
  disabled: false,
  last_delivery_status: 'succeeded',
  last_delivery_error: null,
  last_delivery_at: AT,
  last_success_at: AT,
  consecutive_failures: 0,
  created_at: AT,
  updated_at: AT,
};

export const exampleSchedule: ScheduleResource = {
  id: '4b0f8a4e-5f0c-4c38-9d2b-7a3f3c1f2d55',
  name: 'Late orders',
  description: null,
  timing: { type: 'cron', expression: '0 9 * * 1-5', timezone: 'Europe/Paris' },
  session_request: { agent: 'order-desk', messages: 'Which orders are late?' },
  paused: false,
  pause_note: null,
  repeats: null,
  sessions_created: 12,
  next_run_times: ['2026-11-23T08:00:00.000Z', '2026-11-24T08:00:00.000Z'],
  last_run_at: AT,
  created_at: AT,
  updated_at: AT,
};

export const exampleScheduleRun: ScheduleRunResource = {
  id: '0f2f4a55-9d6c-8b8e-a1a7-0d5f6c7b8a90',
  schedule_id: exampleSchedule.id,
  status: 'created',
  scheduled_for: AT,
  session_id: exampleSession.id,
  error: null,
  triggered_manually: false,
  created_at: AT,
};

export const exampleSkill: Skill = {
  name: 'acme/refunds',
  description: 'How refunds are granted; read it before promising one',
  body: '# Refunds\n\nUp to 50 EUR without asking.',
};

export const exampleEnvironment: Environment = {
  kind: 'web',
  id: 'shop',
  host: 'cloud',
  start_url: 'https://shop.example.com',
  headless: false,
  mode: { type: 'text', chunk_size: 20_000 },
  use_default_browser_profile: false,
  persist_browser_profile: false,
};

export const exampleAgent = {
  name: 'order-desk',
  description: 'Answers questions about orders',
  environments: [],
  instructions: 'Answer in one sentence.',
  skills: ['acme/refunds'],
};

export const exampleRevision = {
  number: 3,
  created_at: AT,
  created_by: 'ann',
  message: 'Shorter answers',
  restored_from: null,
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
