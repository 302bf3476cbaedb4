import { setTimeout as sleep } from 'node:timers/promises';
import type { SessionEvent } from '../../../src/api/agents-v2/wire/events.ts';
import type { SessionStatus } from '../../../src/api/agents-v2/wire/session.ts';
import { toUuid } from '../../../src/api/agents-v2/session-ids.ts';
import type { Changes } from '../../support/agents-v2.ts';
import type { ApiClient } from '../../support/api-client.ts';
import { isFinding, PAUSE_MS } from './persistence.ts';

const SETTLED: ReadonlySet<string> = new Set(['completed', 'failed', 'timed_out', 'interrupted', 'idle']);

/** How long a request waits for the next event. */
const WAIT_SECONDS = 10;

export function isSettled({ status }: SessionStatus): boolean {
  return SETTLED.has(status);
}

/**
 * What one client of the Agents API v2 received of a session, which it follows across all faults with the algorithm of
 * the API's SDKs: a cursor that counts the events, the state after each request, and all further events once that is
 * settled. Each request may reach another API process.
 */
export class RecordedEvents {
  readonly sessionId: string;
  readonly events: SessionEvent[] = [];
  /** Contradictions between the state and the events. */
  readonly findings: string[] = [];
  readonly #api: () => ApiClient;
  readonly #following: Promise<void>;
  #isClosed = false;

  /** @param api the API as the client uses it, for one request */
  constructor(sessionId: string, api: () => ApiClient) {
    this.sessionId = sessionId;
    this.#api = api;
    this.#following = this.#follow();
    this.#following.catch(() => undefined);
  }

  get path(): string {
    return `/api/v2/sessions/${toUuid(this.sessionId)}`;
  }

  /** Resolves when it has so many events; rejects with a response that no server should send. */
  async reaches(count: number): Promise<void> {
    while (this.events.length < count) await Promise.race([sleep(PAUSE_MS), this.#following]);
  }

  close(): void {
    this.#isClosed = true;
  }

  async status(): Promise<SessionStatus> {
    const status = await this.#get<SessionStatus>('/status');
    if (!status) throw new Error('a state has a body');
    return status;
  }

  /** The state and what has happened since the first `from` events; undefined if nothing has. */
  changes(from: number, query = ''): Promise<Changes | undefined> {
    return this.#get<Changes>(`/changes?from_index=${from}${query}`);
  }

  /** All events from `from` on that the session has now. */
  async drain(from = 0, query = ''): Promise<SessionEvent[]> {
    const events: SessionEvent[] = [];
    for (;;) {
      const page = await this.changes(from + events.length, query);
      if (!page || page.new_events.length === 0) return events;
      events.push(...page.new_events);
    }
  }

  /** All events by pages. */
  async list(): Promise<SessionEvent[]> {
    const events: SessionEvent[] = [];
    for (let page = 1; ; page++) {
      const listed = await this.#get<{ items: SessionEvent[]; total: number }>(`/events?size=200&page=${page}`);
      events.push(...(listed?.items ?? []));
      if (!listed || listed.items.length === 0 || events.length >= listed.total) return events;
    }
  }

  async #follow(): Promise<void> {
    while (!this.#isClosed) {
      try {
        const page = await this.changes(this.events.length, `&wait_for_seconds=${WAIT_SECONDS}`);
        this.events.push(...(page?.new_events ?? []));
        const status = await this.status();
        if (isSettled(status)) await this.#settle(status);
      } catch (error) {
        if (isFinding(error)) throw error;
        await sleep(PAUSE_MS);
      }
    }
  }

  /** Reads the rest after a state that is settled: all of its events can be read then, also from another process. */
  async #settle(status: SessionStatus): Promise<void> {
    this.events.push(...(await this.drain(this.events.length)));
    const { events } = this;
    const steps = events.filter(({ type, data }) => type === 'AgentEvent' && data.kind === 'policy_event').length;
    if (steps < status.steps)
      this.findings.push(`${status.status} after ${status.steps} steps, of which ${steps} came`);
    const after = await this.status();
    // Unless a next turn has begun.
    if (after.status !== status.status || after.steps !== status.steps || events.length === 0) return;
    const last = events.at(-1);
    if (!last || !isEnd(last)) this.findings.push(`${status.status}, and the last event is ${JSON.stringify(last)}`);
  }

  async #get<T>(path: string): Promise<T | undefined> {
    const { status, body } = await this.#api().send<T>('GET', this.path + path);
    if (status === 204) return undefined;
    if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
    return body;
  }
}

function isEnd({ type, data }: SessionEvent): boolean {
  if (type === 'ActiveStateChangeEvent') return data.state === 'idle';
  return type === 'AgentCompletionEvent' || type === 'AgentErrorEvent';
}
