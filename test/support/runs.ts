import { createParser } from 'eventsource-parser';
import { expect } from 'vitest';
import { runStreamEvent, type Run, type RunItem, type RunStreamEvent } from '../../src/api/runs/wire/run.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { ApiClient } from './api-client.ts';
import type { Script } from './scripted-model.ts';
import type { ChatRequest, ScriptedModel } from './scripted-model.ts';
import type { TestServer } from './test-server.ts';

/** An agent of the run API with a model of its own, as a client uses it. */
export class RunAgent {
  readonly name = newId('req');
  readonly #server: Pick<TestServer, 'api' | 'model'>;
  readonly #params: object;

  /** @param params those of the agent beside its model */
  constructor(server: Pick<TestServer, 'api' | 'model'>, scripts: Script[] = [], params: object = {}) {
    this.#server = server;
    this.#params = params;
    server.model.script(this.name, ...scripts);
  }

  /** The requests to its model. */
  get requests(): ChatRequest[] {
    const { model }: { model: ScriptedModel } = this.#server;
    return model.requestsTo(this.name);
  }

  script(...scripts: Script[]): void {
    this.#server.model.script(this.name, ...scripts);
  }

  body(input: unknown, more: object = {}): object {
    return { agent: { model: this.name, ...this.#params }, input: itemsOf(input), ...more };
  }

  /** Runs to the end, or to the next pause. */
  async run(input: unknown, more: object = {}): Promise<Run> {
    const { status, body } = await this.#server.api.send<Run>('POST', '/v1/runs', this.body(input, more));
    expect(status, JSON.stringify(body)).toBe(200);
    return body;
  }

  /** The code and the place of the error with which a request is rejected. */
  async refusal(input: unknown, more: object = {}): Promise<[number, string, string | undefined]> {
    const { status, body } = await this.#server.api.send('POST', '/v1/runs', this.body(input, more));
    expect(this.requests).toEqual([]);
    return [status, body.error?.code, body.error?.param];
  }

  stream(input: unknown, more: object = {}): RunStream {
    return RunStream.open(this.#server.api, '/v1/runs', { body: this.body(input, { ...more, stream: true }) });
  }
}

/** One user message, if it is a text. */
function itemsOf(input: unknown): unknown {
  return typeof input === 'string' ? [user(input)] : input;
}

export function user(text: string): object {
  return { type: 'message', role: 'user', content: [{ type: 'text', text }] };
}

/** An item of a model with calls, as llm-agent 0.3 has it. */
export function calls(...all: { id: string; name: string; args?: object }[]): object {
  const content = all.map(({ id, name, args = {} }) => ({
    type: 'tool-call',
    tool_call_id: id,
    tool_name: name,
    args,
  }));
  return { type: 'model', content };
}

export function textOfRun({ content }: Pick<Run, 'content'>): string {
  return content.map((part) => (part.type === 'text' ? part.text : '')).join('');
}

/** The items in short: `model` and the calls, or the call and its outcome. */
export function inShort(items: readonly RunItem[]): string[] {
  return items.map((item) => {
    if (item.type === 'tool') return `${item.tool_call_id} ${item.status}`;
    const ids = item.content.flatMap((part) => (part.type === 'tool-call' ? [part.tool_call_id] : []));
    return ['model', ...ids].join(' ');
  });
}

/** Resumes a run to its end, or to the next pause. */
export async function resumeRun({ api }: Pick<TestServer, 'api'>, run: Run, body: object, headers = {}): Promise<Run> {
  const answer = await api.send<Run>('POST', `/v1/runs/${run.id}/resume`, body, headers);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body;
}

/** The status, the code and the place of the error with which a resumption is rejected. */
export async function resumeRefusal(
  { api }: Pick<TestServer, 'api'>,
  run: Run,
  body: object,
): Promise<[number, string, string | undefined]> {
  const answer = await api.send('POST', `/v1/runs/${run.id}/resume`, body);
  return [answer.status, answer.body.error?.code, answer.body.error?.param];
}

/** Reads the stream of a run as it arrives, and checks each event against its schema. */
export class RunStream {
  readonly events: RunStreamEvent[] = [];
  readonly headers: Promise<Headers>;
  /** Resolves at the end of the stream; rejects with the error body if there is none. */
  readonly done: Promise<RunStreamEvent[]>;
  readonly #abort: AbortController;
  readonly #onEvent: (event: RunStreamEvent) => void;
  readonly #waiting = new Set<() => void>();
  #hasEnded = false;

  static open(
    api: ApiClient,
    path: string,
    {
      body,
      headers = {},
      onEvent,
    }: { body?: object; headers?: Record<string, string>; onEvent?: (event: RunStreamEvent) => void } = {},
  ): RunStream {
    const abort = new AbortController();
    const response = fetch(api.url + path, {
      method: body ? 'POST' : 'GET',
      headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
      ...(body && { body: JSON.stringify(body) }),
      signal: abort.signal,
    });
    return new RunStream(response, abort, onEvent);
  }

  private constructor(
    response: Promise<Response>,
    abort: AbortController,
    onEvent: (event: RunStreamEvent) => void = () => undefined,
  ) {
    this.#abort = abort;
    this.#onEvent = onEvent;
    this.headers = response.then(({ headers }) => headers);
    this.done = this.#read(response).finally(() => {
      this.#hasEnded = true;
      for (const wake of this.#waiting) wake();
    });
    this.done.catch(() => undefined);
    this.headers.catch(() => undefined);
  }

  close(): void {
    this.#abort.abort();
  }

  async next(wanted: (event: RunStreamEvent) => boolean): Promise<RunStreamEvent> {
    for (;;) {
      const found = this.events.find(wanted);
      if (found) return found;
      if (this.#hasEnded)
        throw new Error(`the stream ended without it: ${JSON.stringify(this.events).slice(0, 2_000)}`);
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
      this.#waiting.clear();
    }
  }

  /** The last event, once the stream has ended. */
  async end(): Promise<RunStreamEvent> {
    const last = (await this.done).at(-1);
    if (!last) throw new Error('the stream was empty');
    return last;
  }

  /** The items that were streamed. */
  get items(): RunItem[] {
    return this.events.flatMap((event) => (event.event === 'item' ? [event.item] : []));
  }

  async #read(answer: Promise<Response>): Promise<RunStreamEvent[]> {
    const response = await answer;
    // The reader has the end of the run already.
    if (response.status === 204) return this.events;
    if (!response.ok || !response.body) throw new Error(await response.text());
    const parser = createParser({
      onEvent: ({ id, event, data }) => {
        const parsed = runStreamEvent.parse(JSON.parse(data));
        expect([id, event]).toEqual([String(parsed.sequence_number), undefined]);
        this.events.push(parsed);
        this.#onEvent(parsed);
        for (const wake of this.#waiting) wake();
      },
    });
    const decoder = new TextDecoder();
    for await (const bytes of response.body) parser.feed(decoder.decode(bytes, { stream: true }));
    return this.events;
  }
}
