import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { NumberedStreamEvent, SessionStreamEvent, WireModelMessage } from './wire/events.ts';
import type { ActionResource, WireActionEvent } from './wire/actions.ts';
import type { RuleResource } from './wire/permissions.ts';
import type { SavedToolResource } from './wire/saved-tools.ts';
import type { DeliveryResource, WebhookResource } from './wire/webhooks.ts';
import type { WireSpan } from './wire/timeline.ts';
import type { WireInputItem } from './wire/input.ts';
import type {
  AgentResource,
  AgentVersionResource,
  ConnectionResource,
  DraftResource,
  SessionResource,
  TurnResource,
} from './wire/resources.ts';

/** The examples of the documentation: requests and responses of one conversation. */

const created_at = '2026-11-21T09:30:00.000Z';
const updated_at = '2026-11-21T09:31:12.480Z';

export const exampleSpec: AgentSpec = {
  model: { name: 'gpt-5-mini', params: { temperature: 0.2 } },
  instructions: 'You work for {{company}}.',
  variables: { company: 'ACME' },
  mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'crm', require_approval_for_tools: ['@write'] }],
};

export const exampleAgent: AgentResource = { name: 'helper', version: 3, spec: exampleSpec, created_at, updated_at };

export const exampleAgentVersion: AgentVersionResource = { name: 'helper', version: 3, spec: exampleSpec, created_at };

const sessionFields = {
  id: 'ses_01kac6dw3e8h4v0m6f2q9x7r5t',
  title: 'Which orders are late?',
  created_by_subject: { subject_id: 'ann', subject_type: 'user', subject_slug: 'ann' },
  created_at,
  updated_at,
  metrics: {
    total_input_tokens: 310,
    total_output_tokens: 6,
    total_tokens: 316,
    model_calls: 1,
    tool_calls: 0,
    waited_ms: 0,
  },
  state: 'idle' as const,
  waiting_for: [],
};

export const exampleSession: SessionResource = {
  type: 'session',
  ...sessionFields,
  agent_name: 'helper',
  agent_version: 3,
  metadata: { team: 'blue' },
};

export const exampleDraft: DraftResource = {
  type: 'session/draft',
  ...sessionFields,
  agent_name: 'idea',
  agent_spec: exampleSpec,
};

const exampleInput: WireInputItem[] = [{ type: 'user.message', content: 'Which orders are late?' }];

export const exampleMessage: WireModelMessage = {
  type: 'model.message',
  id: 'msg_01kac6f3a0x6t9w2m5r8e1y4uq',
  created_at: updated_at,
  thread_id: 'main',
  content: 'Two orders are late.',
  tool_calls: [],
  finish_reason: 'stop',
  usage: {
    input_tokens: 310,
    output_tokens: 6,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    input_tokens_breakdown: { harness: 0, skills: 0, instructions: 48, tool_definitions: 150, messages: 112 },
  },
};

export const exampleSpan: WireSpan = {
  kind: 'model_call',
  thread_id: 'main',
  scheduled_at: created_at,
  started_at: created_at,
  ended_at: updated_at,
  pending: false,
  message_id: exampleMessage.id,
  attempt: 1,
  worker: '4711@worker-1',
  outcome: 'answered',
  provider: 'openai',
  model: 'gpt-5-mini',
  tokens: { input: 310, output: 6 },
};

export const exampleTurn: TurnResource = {
  id: 'turn_01kac6f1zy5c3n8s7k4b2g9d6w',
  session_id: sessionFields.id,
  previous_turn_id: null,
  input: exampleInput,
  state: {
    status: 'done',
    output: exampleMessage,
    required_actions: [],
    completed_at: updated_at,
    metrics: {
      total_input_tokens: 310,
      total_output_tokens: 6,
      total_tokens: 316,
      total_cache_read_tokens: 0,
      total_cache_write_tokens: 0,
      total_reasoning_tokens: 0,
      model_calls: 1,
      tool_calls: 0,
      waited_ms: 0,
      unreported_attempts: 0,
    },
  },
  created_by_subject: sessionFields.created_by_subject,
  created_at,
};

export const exampleConnection: ConnectionResource = {
  id: 'con_01kac6dw3e8h4v0m6f2q9x7r5t',
  mcp_server: { id: 'crm', name: 'crm', url: 'https://crm.example.com/mcp' },
  account: 'ann@example.com',
  issuer: 'https://login.example.com',
  scopes: ['crm.read'],
  created_at,
};

const exampleDelta = {
  type: 'model.message.delta' as const,
  id: exampleMessage.id,
  thread_id: 'main',
  content: 'Two orders',
  sequence_number: 1_000_002,
} satisfies NumberedStreamEvent;

export const exampleServerSentEvent = { id: '1000002', data: JSON.stringify(exampleDelta) };

export const exampleSessionServerSentEvent = {
  id: '1000002',
  data: JSON.stringify({ ...exampleDelta, turn_id: exampleTurn.id } satisfies SessionStreamEvent),
};

export const exampleAction: ActionResource = {
  id: 'act_01kac6f1zy5c3n8s7k4b2g9d9z_0',
  session_id: sessionFields.id,
  turn_id: exampleTurn.id,
  agent_name: 'helper',
  thread_id: 'main',
  tool_call_id: 'call_1',
  kind: 'approval',
  tool: { server: 'crm', name: 'refund' },
  arguments: { order: 4711 },
  requested_at: updated_at,
  decisions: [],
  status: 'pending',
};

export const exampleActionEvent = {
  id: '4712',
  data: JSON.stringify({ type: 'action.created', action: exampleAction } satisfies WireActionEvent),
};

export const exampleRule: RuleResource = {
  id: 'rule_01kac7x2m4b8d6f0h3k5p9r1tv',
  scope: 'session',
  effect: 'allow',
  action: 'shell',
  command: 'git status *',
  created_at,
  created_by: sessionFields.created_by_subject,
};

export const exampleSavedTool: SavedToolResource = {
  category: 'reports',
  name: 'late_orders',
  kind: 'tool',
  description: 'The orders that are late.',
  version: 2,
  created_by: sessionFields.created_by_subject,
  updated_at,
  api: 'from .impl import late\n\ndef run(days: int = 7) -> list[str]:\n    return late(days)\n',
  impl: 'def late(days):\n    return []\n',
};

export const exampleWebhook: WebhookResource = {
  id: 'whk_01kac7x2m4b8d6f0h3k5p9r1tv',
  url: 'https://example.com/hooks/everturn',
  events: ['turn.done', 'action.created'],
  agent_name: null,
  created_at,
};

export const exampleDelivery: DeliveryResource = {
  id: 'dlv_01kac7z9q2w4e6r8t0y1u3i5o7',
  type: 'action.created',
  session_id: sessionFields.id,
  turn_id: exampleTurn.id,
  status: 'delivered',
  attempts: 1,
  created_at: updated_at,
  last_attempt_at: updated_at,
  response_status: 200,
  error: null,
};
