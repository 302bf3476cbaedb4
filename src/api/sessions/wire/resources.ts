import { z } from 'zod';
import { ACTION_KINDS } from '../../../core/actions.ts';
import { agentSpec } from '../../../spec/agent-spec.ts';
import { identifier, line } from '../../../spec/bounds.ts';
import { timestamp } from './event.ts';
import { sessionEvent, turnMetrics, turnState } from './events.ts';
import { subject } from './subject.ts';
import { inputItem } from './input.ts';

/** Request bodies and resources (`docs/sessions-api.md`, sections 1 and 3) except events and turn input. */

export const createSessionBody = z.strictObject({ agent_name: identifier, title: line({ max: 200 }).nullish() });

export const createDraftBody = z.strictObject({ agent_spec: agentSpec, agent_name: line({ max: 256 }).nullish() });

export const updateDraftBody = z.strictObject({ agent_spec: agentSpec.nullish() });

export const cancelBody = z.strictObject({ close: z.boolean().nullish() });

export const subscribeBody = z.strictObject({ after_sequence_number: z.int().min(0).nullish() });

/** The sums of the ended turns of a session. */
const sessionMetrics = turnMetrics
  .pick({ total_input_tokens: true, total_output_tokens: true, total_tokens: true, model_calls: true })
  .extend({
    total_cost_in_usd: z
      .number()
      .optional()
      .describe('absent if nothing is known to have cost anything, or a price is unknown'),
    tool_calls: z.int(),
    waited_ms: z.int().describe('how long turns were paused'),
  })
  .meta({ id: 'SessionMetrics' });

export const SHOWN_SESSION_STATES = [
  'idle',
  'queued',
  'running',
  'waiting_client',
  'waiting_person',
  'paused',
  'error',
  'closed',
] as const;

const waitingFor = z
  .object({
    kind: z.enum(ACTION_KINDS),
    turn_id: z.string(),
    tool_call_id: z.string().optional().describe('absent if no call waits'),
  })
  .meta({ id: 'WaitingFor' });

const sessionFields = {
  id: z.string(),
  title: z.string().nullable(),
  created_by_subject: subject,
  created_at: timestamp,
  updated_at: timestamp,
  metadata: z.record(z.string(), z.unknown()).optional(),
  metrics: sessionMetrics,
  state: z
    .enum(SHOWN_SESSION_STATES)
    .describe('what its last turn does, or how it has left the session; `error`: with an error, or by a time limit'),
  waiting_for: z.array(waitingFor).describe('what waits for a client or a person'),
};

export const sessionResource = z
  .object({ type: z.literal('session'), ...sessionFields, agent_name: z.string(), agent_version: z.int() })
  .meta({ id: 'Session' });

export const draftResource = z
  .object({
    type: z.literal('session/draft'),
    ...sessionFields,
    agent_name: z.string().nullable(),
    agent_spec: agentSpec,
  })
  .meta({ id: 'DraftSession' });

export const turnResource = z
  .object({
    id: z.string(),
    session_id: z.string(),
    previous_turn_id: z.string().nullable(),
    input: z.array(inputItem),
    state: turnState,
    created_by_subject: subject,
    created_at: timestamp,
  })
  .meta({ id: 'Turn' });

/** The result of `POST …/actions`, with the ids of calls. */
export const acceptedAnswers = z
  .object({
    accepted: z.array(z.string()).describe('the calls that were answered'),
    waiting: z.array(z.string()).describe('those that still wait'),
    repeated: z
      .array(z.string())
      .optional()
      .describe('those of `accepted` that the caller had answered like this before: the answer counts once'),
    turn_id: z.string().optional().describe('the turn that was started with the answers to an ended turn'),
  })
  .meta({ id: 'AcceptedAnswers' });

const agentPartCheck = z
  .object({
    type: z.enum(['model', 'mcp_server']),
    name: z.string().describe('as the agent names it, or the server its model for embeddings'),
    address: z
      .string()
      .nullable()
      .describe('host and port; null for a program, for what is not known, and for a provider at its own address'),
    status: z
      .enum(['ok', 'sign_in_required', 'failed'])
      .describe('`sign_in_required`: the server works once its user, here the caller, has signed in'),
    reason: z.string().nullable().describe('why it is not `ok`'),
    seconds: z.number().describe('until it answered, or failed'),
  })
  .meta({ id: 'AgentPartCheck' });

export const agentResource = z
  .object({
    name: z.string(),
    version: z.int(),
    spec: agentSpec,
    created_at: timestamp,
    updated_at: timestamp,
    warnings: z
      .array(z.string())
      .optional()
      .describe('what may not work as intended, where one agent is written or read; absent if there is nothing'),
    checks: z
      .array(agentPartCheck)
      .optional()
      .describe('the results of trying its models and MCP servers, if it was written with `check=true`'),
  })
  .meta({ id: 'Agent' });

/** One version of an agent, which is immutable. */
export const agentVersionResource = agentResource
  .omit({ updated_at: true, warnings: true, checks: true })
  .meta({ id: 'AgentVersion' });

/** The access of a subject to an MCP server that requires a sign-in. */
export const connectionResource = z
  .object({
    id: z.string(),
    mcp_server: z.object({ id: z.string(), name: z.string(), url: z.string() }),
    account: z
      .string()
      .nullable()
      .describe('the account at the authorization server, as that names it; null if it does not'),
    issuer: z.string().describe('the authorization server'),
    scopes: z.array(z.string()),
    created_at: timestamp,
  })
  .meta({ id: 'McpConnection' });

/** Sessions and drafts in one list. */
export const anySessionResource = z.discriminatedUnion('type', [sessionResource, draftResource]);

/** An item of `GET …/{sid}/events`. */
export const sessionEventItem = z.object({ turn_id: z.string(), event: sessionEvent }).meta({ id: 'SessionEventItem' });

export type CreateSessionBody = z.infer<typeof createSessionBody>;
export type SessionResource = z.infer<typeof sessionResource>;
export type DraftResource = z.infer<typeof draftResource>;
export type TurnResource = z.infer<typeof turnResource>;
export type AgentResource = z.infer<typeof agentResource>;
export type AgentVersionResource = z.infer<typeof agentVersionResource>;
export type AnySessionResource = z.infer<typeof anySessionResource>;
export type ConnectionResource = z.infer<typeof connectionResource>;
