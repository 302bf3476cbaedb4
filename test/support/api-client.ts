import { createParser } from 'eventsource-parser';
import { expect } from 'vitest';
import { streamEvent, type StreamEvent } from '../../src/api/sessions/wire/events.ts';
import { ClientFold } from './client-fold.ts';
import { expectDeclared } from './contract.ts';

export interface Answer<T = unknown> {
  status: number;
  headers: Headers;
  body: T;
}

export type Frame = StreamEvent & { sequence_number: number };

/** An event of a session's stream. */
export type SessionFrame = Frame & { turn_id: string };

/** The API as a client sees it. */
export class ApiClient {
  readonly url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, key?: string) {
    this.url = url;
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  }

  // oxlint-disable-next-line typescript/no-explicit-any -- tests look into answers of every shape
  async send<T = any>(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer<T>> {
    const response = await fetch(this.url + path, {
      method,
      headers: { ...this.#headers, ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const { status } = response;
    const parsed = JSON.parse((await response.text()) || 'null') as T;
    expectDeclared({ method, path, status, body: parsed });
    return { status, headers: response.headers, body: parsed };
  }

  // oxlint-disable-next-line typescript/no-explicit-any -- as above
  async get<T = any>(path: string): Promise<T> {
    const { status, body } = await this.send<T>('GET', path);
    expect(status, JSON.stringify(body)).toBe(200);
    return body;
  }

  /** All items of a listing, page by page. */
  async list<T>(path: string, limit = 100): Promise<T[]> {
    const items: T[] = [];
    let token: string | null = null;
    do {
      const query = `${path.includes('?') ? '&' : '?'}limit=${limit}${token ? `&page_token=${token}` : ''}`;
      const page: { data: T[]; pagination: { next_page_token: string | null } } = await this.get(path + query);
      items.push(...page.data);
      token = page.pagination.next_page_token;
    } while (token);
    return items;
  }

  async createSession(agent: string): Promise<string> {
    const { status, body } = await this.send<{ data: { id: string } }>('POST', '/v1/agents/sessions', {
      agent_name: agent,
    });
    expect(status, JSON.stringify(body)).toBe(201);
    return body.data.id;
  }

  async putAgent(name: string, spec: object): Promise<void> {
    const { status, body } = await this.send('PUT', `/v1/agents/${name}`, spec);
    expect(status, JSON.stringify(body)).toBe(200);
  }

  /** Starts a turn and streams it. */
  turn(sessionId: string, input: unknown, more: object = {}, headers: Record<string, string> = {}): EventReader {
    const body = { input: typeof input === 'string' ? [{ type: 'user.message', content: input }] : input, ...more };
    return this.stream(`/v1/agents/sessions/${sessionId}/turns`, body, headers);
  }

  subscribe(sessionId: string, turnId: string, after?: number, how: 'body' | 'header' = 'body'): EventReader {
    const path = `/v1/agents/sessions/${sessionId}/turns/${turnId}/subscribe`;
    if (after === undefined) return this.stream(path, {});
    return how === 'body'
      ? this.stream(path, { after_sequence_number: after })
      : this.stream(path, undefined, { 'last-event-id': String(after) });
  }

  /** Streams a turn as an EventSource does. */
  followTurn(sessionId: string, turnId: string): EventReader {
    const abort = new AbortController();
    const path = `/v1/agents/sessions/${sessionId}/turns/${turnId}/stream`;
    const response = fetch(this.url + path, { headers: this.#headers, signal: abort.signal });
    return new EventReader(response, abort, frameOf);
  }

  stream(path: string, body: unknown, headers: Record<string, string> = {}): EventReader {
    const abort = new AbortController();
    const response = fetch(this.url + path, {
      method: 'POST',
      headers: { ...this.#headers, ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: abort.signal,
    });
    return new EventReader(response, abort, frameOf);
  }

  /** Streams a session over all of its turns; it does not end by itself. */
  followSession(
    sessionId: string,
    after?: number,
    how: 'query' | 'header' = 'query',
    query: Record<string, string> = {},
  ): EventReader<SessionFrame> {
    const abort = new AbortController();
    const cursor = after === undefined ? '' : String(after);
    const search = new URLSearchParams({ ...query, ...(how === 'query' && cursor !== '' && { after: cursor }) });
    const response = fetch(`${this.url}/v1/agents/sessions/${sessionId}/stream?${search.toString()}`, {
      headers: { ...this.#headers, ...(how === 'header' && { 'last-event-id': cursor }) },
      signal: abort.signal,
    });
    return new EventReader(response, abort, sessionFrameOf);
  }
}

/** Reads an event stream as it arrives, and checks it against the framing of the contract. */
export class EventReader<F extends Frame = Frame> {
  readonly frames: F[] = [];
  /** Called with each frame as it arrives. */
  onFrame: ((frame: F) => void) | undefined;
  readonly #abort: AbortController;
  readonly #frameOf: (data: string) => F;
  readonly #waiting = new Set<() => void>();
  #ended = false;
  /** Resolves at the stream's end with all of its events; rejects with the error body if there is no stream. */
  readonly done: Promise<F[]>;

  constructor(response: Promise<Response>, abort: AbortController, frameOf: (data: string) => F) {
    this.#abort = abort;
    this.#frameOf = frameOf;
    this.done = this.#read(response).finally(() => {
      this.#ended = true;
      for (const wake of this.#waiting) wake();
    });
    this.done.catch(() => undefined);
  }

  /** Closes the connection. */
  close(): void {
    this.#abort.abort();
  }

  /** Waits for the first event that `wanted` accepts, and returns it. */
  async next(wanted: (frame: F) => boolean): Promise<F> {
    for (;;) {
      const found = this.frames.find(wanted);
      if (found) return found;
      if (this.#ended) {
        await this.done;
        throw new Error(`the stream ended without the event; it had ${this.frames.map(({ type }) => type).join(', ')}`);
      }
      await new Promise<void>((resolve) => {
        this.#waiting.add(resolve);
      });
    }
  }

  /** Waits until the messages so far contain `text`, in any number of deltas. */
  async says(text: string): Promise<void> {
    await this.next(() =>
      folded(this.frames).some((event) => 'content' in event && String(event.content).includes(text)),
    );
  }

  async type<T extends Frame['type']>(type: T): Promise<Extract<Frame, { type: T }>> {
    const frame: Frame = await this.next((one) => one.type === type);
    return frame as Extract<Frame, { type: T }>;
  }

  /** The turn's id, which the first event has. */
  async turnId(): Promise<string> {
    return (await this.type('turn.created')).turn_id;
  }

  /** The turn's end. */
  async end(): Promise<Extract<Frame, { type: 'turn.done' }>['state']> {
    return (await this.type('turn.done')).state;
  }

  async #read(promise: Promise<Response>): Promise<F[]> {
    const response = await promise;
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/);
    let text = '';
    const parser = createParser({
      onEvent: ({ id, event, data }) => {
        expect(event).toBeUndefined();
        expect(data.length).toBeLessThan(1024 * 1024);
        const frame = this.#frameOf(data);
        expect(id).toBe(String(frame.sequence_number));
        expect(frame.sequence_number).toBeGreaterThan(this.frames.at(-1)?.sequence_number ?? 0);
        this.frames.push(frame);
        this.onFrame?.(frame);
        for (const wake of this.#waiting) wake();
        this.#waiting.clear();
      },
      onComment: (comment) => expect(comment).not.toContain('data:'),
    });
    const decoder = new TextDecoder();
    try {
      for await (const chunk of response.body ?? []) {
        text = decoder.decode(chunk, { stream: true });
        parser.feed(text);
      }
    } catch (error) {
      if (!this.#abort.signal.aborted) throw error;
    }
    return this.frames;
  }
}

/** Checks that an event matches the contract, and has no field that the contract lacks. */
export function frameOf(data: string): Frame {
  const { sequence_number: sequenceNumber, ...event } = JSON.parse(data) as Frame;
  expect(streamEvent.parse(event)).toEqual(event);
  return { ...event, sequence_number: sequenceNumber };
}

/** The same for an event of a session's stream. */
function sessionFrameOf(data: string): SessionFrame {
  const event = JSON.parse(data) as SessionFrame;
  const { turn_id: turnId, ...rest } = event;
  expect(turnId).toMatch(/^turn_/);
  return { ...frameOf(JSON.stringify(event.type === 'turn.created' ? event : rest)), turn_id: turnId };
}

/** The state of a client after these events of a session, turn by turn, in the form of the lists. */
export function foldedByTurn(...streams: SessionFrame[][]): { turnId: string; events: object[] }[] {
  return [...Map.groupBy(streams.flat(), (frame) => frame.turn_id)].map(([turnId, frames]) => ({
    turnId,
    events: folded(
      frames.map((frame) => {
        if (frame.type === 'turn.created') return frame;
        const { turn_id: _, ...event } = frame;
        return event;
      }),
    ),
  }));
}

/** The state of a client after these events, in the form of the lists. */
export function folded(...streams: Frame[][]): object[] {
  const client = new ClientFold();
  for (const { sequence_number: _, ...event } of streams.flat()) client.add(event);
  return client.events;
}

/** Events in the order that all readers see: with sub-agents, which may be of an earlier turn, each thread has its own. */
export function inOrder(events: object[]): unknown {
  const hasThreads = events.some(
    (event) => 'thread_id' in event && event.thread_id !== null && event.thread_id !== 'main',
  );
  return hasThreads ? byThread(events) : events;
}

/**
 * Events by their threads, in order. Threads work in parallel, so a reader that follows them and one that reads the log
 * see the events of different threads in different orders.
 */
export function byThread(events: object[]): Record<string, { type?: string }[]> {
  return Object.groupBy(events, (event) => ('thread_id' in event ? String(event.thread_id) : '')) as Record<
    string,
    { type?: string }[]
  >;
}
