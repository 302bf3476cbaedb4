import type { Reader } from '../../../auth/rights.ts';
import type { Catalog } from '../../../catalog/catalog.ts';
import type { SessionRow } from '../../../catalog/schema.ts';
import type { TurnEnds } from '../../../engine/turn-log-reader.ts';
import { dollars } from '../../../lib/dollars.ts';
import { inFormat } from '../../../spec/agent-spec.ts';
import { inputToWire } from './input-to-wire.ts';
import { subjectToWire } from './subject-to-wire.ts';
import { runningState, stateToWire } from './turn-state-to-wire.ts';
import type { AnySessionResource, DraftResource, SessionResource, TurnResource } from './resources.ts';

export function toSession(session: SessionRow): SessionResource {
  const { agent_name: agentName, agent_version: agentVersion } = session;
  return { type: 'session', ...commonFields(session), agent_name: agentName ?? '', agent_version: agentVersion ?? 0 };
}

export async function toDraft(session: SessionRow, { agents }: Catalog): Promise<DraftResource> {
  return {
    type: 'session/draft',
    ...commonFields(session),
    agent_name: session.agent_name,
    agent_spec: inFormat(await agents.spec(session.spec_hash)),
  };
}

export async function toSessionOrDraft(session: SessionRow, catalog: Catalog): Promise<AnySessionResource> {
  return session.type === 'session' ? toSession(session) : toDraft(session, catalog);
}

/** The fields that sessions and drafts share. */
function commonFields(session: SessionRow) {
  const { id, title, created_at, updated_at, metadata } = session;
  const owner = subjectToWire({
    subjectId: session.subject_id,
    subjectType: session.subject_type,
    subjectSlug: session.subject_slug,
  });
  return {
    id,
    title,
    created_by_subject: owner,
    created_at,
    updated_at,
    metrics: metricsOf(session),
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

export function toTurnResource({ created, done, ...running }: TurnEnds, reader: Reader): TurnResource {
  return {
    id: created.turnId,
    session_id: created.sessionId,
    previous_turn_id: created.previousTurnId,
    input: inputToWire(created.input, created.sessionId),
    state: done ? stateToWire(done, reader) : runningToWire(running),
    created_by_subject: subjectToWire(created.createdBy),
    created_at: created.at,
  };
}

type RunningTurn = Pick<TurnEnds, 'waiting' | 'paused' | 'position'>;

function runningToWire({ waiting = [], paused = [], position }: RunningTurn): TurnResource['state'] {
  return { ...runningState(position), ...(waiting.length > 0 && { waiting }), ...(paused.length > 0 && { paused }) };
}
