import { expect } from 'vitest';
import type { SessionEvent } from '../../src/api/agents-v2/wire/events.ts';
import type { SessionResource, SessionStatus } from '../../src/api/agents-v2/wire/session.ts';
import { webhookMessage, type WebhookMessage } from '../../src/api/agents-v2/wire/webhooks.ts';
import type { toChanges } from '../../src/api/agents-v2/read-session.ts';
import type { Answer, ApiClient } from './api-client.ts';
import { eventually } from './eventually.ts';
import type { WebhookReceiver } from './webhook-receiver.ts';

export type Changes = ReturnType<typeof toChanges>;

const FINAL = ['completed', 'failed', 'timed_out', 'interrupted'];

/** An agent whose model has scripts under the same name. */
export function agentNamed(name: string, more: object = {}): object {
  return { name, description: 'for the test', environments: [], model: name, ...more };
}

/** A session of the Agents API v2, as a client has it. */
export class AgentSession {
  readonly api: ApiClient;
  readonly id: string;

  constructor(api: ApiClient, id: string) {
    this.api = api;
    this.id = id;
  }

  static async create(api: ApiClient, request: object): Promise<AgentSession> {
    const { status, body } = await api.send<SessionResource>('POST', '/api/v2/sessions', request);
    expect(status, JSON.stringify(body)).toBe(201);
    return new AgentSession(api, body.id);
  }

  get path(): string {
    return `/api/v2/sessions/${this.id}`;
  }

  get(): Promise<SessionResource> {
    return this.api.get(this.path);
  }

  status(): Promise<SessionStatus> {
    return this.api.get(`${this.path}/status`);
  }

  /** Sends something to the session. */
  post(what: string, body?: object): Promise<Answer> {
    return this.api.send('POST', `${this.path}/${what}`, body);
  }

  say(message: string): Promise<Answer> {
    return this.post('messages', { type: 'user_message', message });
  }

  /** Undefined if there is nothing new. */
  async changes(query: string): Promise<Changes | undefined> {
    const { status, body, headers } = await this.api.send<Changes>('GET', `${this.path}/changes?${query}`);
    if (status === 204) {
      expect(headers.get('etag')).toMatch(/^\d+$/);
      return undefined;
    }
    expect(status, JSON.stringify(body)).toBe(200);
    return body;
  }

  /** All events from `from` on that the session has now. */
  async drain(from = 0): Promise<SessionEvent[]> {
    const events: SessionEvent[] = [];
    for (;;) {
      const changes = await this.changes(`from_index=${from + events.length}`);
      if (!changes || changes.new_events.length === 0) return events;
      events.push(...changes.new_events);
    }
  }

  async until(...statuses: string[]): Promise<SessionStatus> {
    let status = await this.status();
    await eventually(async () => {
      status = await this.status();
      expect(statuses).toContain(status.status);
    });
    return status;
  }

  /** Waits as the SDKs do: changes by long poll, the state after each, and all of the rest once it is settled. */
  async settle(from = 0): Promise<{ status: SessionStatus; events: SessionEvent[] }> {
    const events: SessionEvent[] = [];
    for (;;) {
      const changes = await this.changes(`from_index=${from + events.length}&wait_for_seconds=20`);
      events.push(...(changes?.new_events ?? []));
      const status = await this.status();
      if (![...FINAL, 'idle'].includes(status.status)) continue;
      events.push(...(await this.drain(from + events.length)));
      return { status, events };
    }
  }
}

/** The events by their types; those of the agent by their kinds. */
export function kindsOf(events: SessionEvent[]): string[] {
  return events.map(({ type, data }) => (type === 'AgentEvent' ? data.kind : type));
}

/** The messages to a webhook of the Agents API v2. */
export function received(to: WebhookReceiver): WebhookMessage[] {
  return to.requests.map(({ body }) => webhookMessage.parse(JSON.parse(body)));
}

/** The statuses sent of a session: its first previous one, and then the others. Each continues the one before it. */
export function toldOf(to: WebhookReceiver, sessionId: string): string[] {
  const statuses: string[] = [];
  for (const { type, data } of received(to)) {
    if (type !== 'session.status_updated' || data.session_id !== sessionId) continue;
    if (statuses.length === 0) statuses.push(data.previous_status);
    expect(data.previous_status).toBe(statuses.at(-1));
    statuses.push(data.status);
  }
  return statuses;
}
