import { LRUCache } from 'lru-cache';
import type { SessionRow } from '../../catalog/schema.ts';
import { pick } from '../../core/pick.ts';
import { isGiven } from '../../lib/is-given.ts';
import type { SessionRequestRow } from '../../features/agent-sessions/session-requests.ts';
import { toUuid } from './session-ids.ts';
import { stateOf, type AgentSessionState } from './session-state.ts';
import { SessionView, type ViewServices } from './session-view.ts';
import { parseStored } from './stored-request.ts';
import { metricsOf, tokensOf, waitingRequest } from './turn-events.ts';
import type { SessionEvent, ToolCallRequest } from './wire/events.ts';
import type { SessionResource, SessionStatus } from './wire/session.ts';

const MAX_VIEWS = 2_000;

/** The size of all views together, in approximate characters. */
const MAX_CHARACTERS = 64 * 1024 * 1024;

/** A session as it was read now. */
export interface ReadSession {
  session: SessionRow;
  /** Undefined if the session was created through another API. */
  request: SessionRequestRow | undefined;
  /** The sessions of its sub-agents, oldest first. */
  children: string[];
  view: SessionView;
}

/** Reads sessions for this API; requests for the same session share what they read. */
export class SessionReader {
  readonly #services: ViewServices;
  readonly #views = new LRUCache<string, SessionView>({
    max: MAX_VIEWS,
    maxSize: MAX_CHARACTERS,
    sizeCalculation: ({ characters }) => characters,
  });

  constructor({ catalog, logs, sessionIndex, tails, sessionWatches }: ViewServices) {
    this.#services = { catalog, logs, sessionIndex, tails, sessionWatches };
  }

  /** @param session from `authorizeSession` */
  async read(session: SessionRow): Promise<ReadSession> {
    const { sessionRequests } = this.#services.catalog;
    const request = await sessionRequests.get(session.id);
    // A session of another API waits for messages without a time limit.
    const isInteractive = request?.idle_timeout_s !== null;
    const view =
      this.#views.get(session.id) ?? new SessionView(this.#services, { sessionId: session.id, isInteractive });
    this.#views.set(session.id, view);
    await view.refresh();
    // The cache computes the size of a new entry only, and the view's size has changed.
    if (this.#views.get(session.id) === view) {
      this.#views.delete(session.id);
      this.#views.set(session.id, view);
    }
    return { session, request, children: await sessionRequests.childrenOf(session.id), view };
  }
}

/** The state of a session that was read. */
export function stateNow({ request, view: { turn } }: Pick<ReadSession, 'request' | 'view'>): AgentSessionState {
  return stateOf({ request, turn, now: Date.now() });
}

/** The calls that wait for the client. */
export function pendingToolCalls({ turn }: SessionView): ToolCallRequest[] {
  return turn?.forClient.map(waitingRequest) ?? [];
}

export function toStatus(read: ReadSession): SessionStatus {
  const { view } = read;
  const { status, error, errorCode } = stateNow(read);
  const { steps, models } = view.totals;
  return {
    status,
    error,
    error_code: errorCode,
    outcome: null,
    steps,
    usage_per_model: [...models].map(([name, usage]) => tokensOf(name, usage)),
    subagent_session_ids: read.children.map(toUuid),
    pending_tool_calls: pendingToolCalls(view),
  };
}

export function toResource(read: ReadSession): SessionResource {
  const { session, request, view } = read;
  return {
    id: toUuid(session.id),
    request: isGiven(request?.request)
      ? parseStored(request.request)
      : {
          agent: { name: session.agent_name ?? '', description: '', environments: [] },
          messages: [],
          parent_session_id: isGiven(request?.parent_session_id) ? toUuid(request.parent_session_id) : null,
        },
    status: toStatus(read),
    agent_revision: request?.agent_revision ?? session.agent_version,
    agent_view_url: null,
    latest_answer: view.answer?.value ?? null,
    created_at: session.created_at,
    started_at: view.startedAt ?? null,
    finished_at: stateNow(read).finishedAt,
  };
}

/**
 * A session for callers who may read it only because it is shared: the conversation, without the agent's definition,
 * which may be the owner's secret. Each field is named, so that a new one is not shown before it is added here.
 */
export function forEveryone({ request, ...session }: SessionResource): SessionResource {
  const { name, description = '' } = request.agent;
  return {
    ...pick(session, 'id', 'status', 'agent_view_url', 'latest_answer', 'created_at', 'started_at', 'finished_at'),
    request: { agent: { name, description, environments: [] }, messages: request.messages },
    agent_revision: null,
  };
}

export function toChanges(read: ReadSession, newEvents: SessionEvent[], firstIndex: number) {
  const { view } = read;
  const { status, error, errorCode, finishedAt } = stateNow(read);
  return {
    status,
    started_at: view.startedAt ?? null,
    finished_at: finishedAt,
    error,
    error_code: errorCode,
    new_events: newEvents,
    first_index: firstIndex,
    answer: view.answer?.value ?? null,
    outcome: null,
    metrics: metricsOf(view.totals),
    pending_tool_calls: pendingToolCalls(view),
  };
}
