import type { Reader } from '../../../auth/rights.ts';
import type { Catalog } from '../../../features/catalog.ts';
import type { PendingAction } from '../../../features/inbox/action-rows.ts';
import type { SessionRow } from '../../../catalog/schema.ts';
import { subjectOf } from '../../../catalog/sessions.ts';
import type { Retrying } from '../../../core/attempts.ts';
import type { SessionState } from '../../../core/session-state.ts';
import type { TurnSummary } from '../../../engine/turn-log-reader.ts';
import { dollars } from '../../../lib/dollars.ts';
import { inFormat } from '../../../spec/agent-spec.ts';
import { inputToWire } from './input-to-wire.ts';
import { subjectToWire } from './subject.ts';
import { runningState, stateToWire } from './turn-state-to-wire.ts';
import type { AnySessionResource, DraftResource, SessionResource, TurnResource } from './resources.ts';

/** The states of this API, by those of the catalog. */
export const STATE_OF: Record<SessionState, SessionResource['state']> = {
  idle: 'idle',
  queued: 'queued',
  pending: 'running',
  running: 'running',
  delegating: 'running',
  asking: 'waiting_client',
  waiting_client: 'waiting_client',
  waiting_person: 'waiting_person',
  paused: 'paused',
  completed: 'idle',
  unanswered: 'idle',
  error: 'error',
  timed_out: 'error',
  cancelled: 'idle',
  abandoned: 'error',
};

/** A session, and what the catalog has of it beside its row. */
export interface SessionWithActions {
  session: SessionRow;
  /** The actions that it waits for. */
  waiting: PendingAction[];
}

export function toSession({ session, waiting }: SessionWithActions): SessionResource {
  const { agent_name: agentName, agent_version: agentVersion } = session;
  const fields = commonFields(session, waiting);
  return { type: 'session', ...fields, agent_name: agentName ?? '', agent_version: agentVersion ?? 0 };
}

export async function toDraft({ session, waiting }: SessionWithActions, { agents }: Catalog): Promise<DraftResource> {
  return {
    type: 'session/draft',
    ...commonFields(session, waiting),
    agent_name: session.agent_name,
    agent_spec: inFormat(await agents.spec(session.spec_hash)),
  };
}

export async function toSessionOrDraft(one: SessionWithActions, catalog: Catalog): Promise<AnySessionResource> {
  return one.session.type === 'session' ? toSession(one) : toDraft(one, catalog);
}

/** The fields that sessions and drafts share. */
function commonFields(session: SessionRow, waiting: PendingAction[]) {
  const { id, title, created_at, updated_at, metadata, state, closed } = session;
  return {
    id,
    title,
    created_by_subject: subjectToWire(subjectOf(session)),
    created_at,
    updated_at,
    metrics: metricsOf(session),
    state: closed === 1 ? ('closed' as const) : STATE_OF[state ?? 'idle'],
    waiting_for: waiting.map(({ kind, turn_id, tool_call_id: call }) => ({
      kind,
      turn_id,
      ...(call !== null && { tool_call_id: call }),
    })),
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated before it was stored
    ...(metadata !== null && { metadata: JSON.parse(metadata) as Record<string, unknown> }),
  };
}

function metricsOf(session: SessionRow): SessionResource['metrics'] {
  const { input_tokens: input, output_tokens: output, cost_in_usd: cost, model_calls, tool_calls, waited_ms } = session;
  return {
    total_input_tokens: input,
    total_output_tokens: output,
    total_tokens: input + output,
    ...(cost && { total_cost_in_usd: dollars(cost) }),
    model_calls,
    tool_calls,
    waited_ms,
  };
}

/** @param retrying why a running turn repeats a call, if it does */
export function toTurnResource(
  { created, done, ...running }: TurnSummary,
  reader: Reader,
  retrying?: Retrying,
): TurnResource {
  return {
    id: created.turnId,
    session_id: created.sessionId,
    previous_turn_id: created.previousTurnId,
    input: inputToWire(created.input, created.sessionId),
    state: done ? stateToWire(done, reader) : runningToWire(running, retrying),
    created_by_subject: subjectToWire(created.createdBy),
    created_at: created.at,
  };
}

type RunningTurn = Pick<TurnSummary, 'waiting' | 'paused' | 'position'>;

function runningToWire(
  { waiting = [], paused = [], position }: RunningTurn,
  retrying: Retrying | undefined,
): TurnResource['state'] {
  return {
    ...runningState(position),
    ...(waiting.length > 0 && { waiting }),
    ...(paused.length > 0 && { paused }),
    ...(retrying && { retrying: { ...retrying, provider: retrying.provider ?? null } }),
  };
}
