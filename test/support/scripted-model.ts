import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { z } from 'zod';
import { listen } from '../../src/demo/local-server.ts';
import { brokenRules } from './provider-rules.ts';

const chatRequest = z.looseObject({
  model: z.string(),
  messages: z.array(
    z.looseObject({
      role: z.string(),
      content: z
        .union([z.string(), z.array(z.looseObject({ type: z.string(), text: z.string().optional() })), z.null()])
        .optional(),
      tool_call_id: z.string().optional(),
      tool_calls: z
        .array(z.looseObject({ id: z.string(), function: z.object({ name: z.string(), arguments: z.string() }) }))
        .optional(),
    }),
  ),
  tools: z.array(z.object({ type: z.string(), function: z.looseObject({ name: z.string() }) })).optional(),
});
export type ChatRequest = z.infer<typeof chatRequest>;

/** The content of a message that consists of text alone; empty for one with other parts, and for none. */
export function textOf(message: ChatRequest['messages'][number] | undefined): string {
  return typeof message?.content === 'string' ? message.content : '';
}

/** The behaviour of a model for one request. */
export type Script = (call: ModelCall) => void | Promise<void>;

/**
 * Models with scripted behaviour: a real HTTP endpoint that speaks OpenAI's streaming protocol. Each model name has
 * its own scripts, which its requests take in order; `otherwise` handles requests without one. A request that breaks
 * the rules of providers (`provider-rules.ts`) is rejected, and fails the test.
 */
export class ScriptedModel {
  readonly requests: ChatRequest[] = [];
  readonly url: string;
  /** The models that `GET /models` lists; undefined: the endpoint does not exist. */
  models: string[] | undefined;
  otherwise: Script = say('ok');
  readonly #broken: string[] = [];
  readonly #scripts = new Map<string, Script[]>();
  readonly #stop: () => Promise<void>;

  private constructor(url: string, stop: () => Promise<void>) {
    this.url = url;
    this.#stop = stop;
  }

  static async start(): Promise<ScriptedModel> {
    const holder: { model?: ScriptedModel } = {};
    const { url, stop } = await listen((request, response) => {
      const { model } = holder;
      if (request.method === 'GET') {
        const { pathname } = new URL(request.url ?? '/', 'http://x');
        model?.answerModels(pathname, response);
        return;
      }
      json(request)
        .then((body) => model?.answer(chatRequest.parse(body), request.headers, response))
        .catch((error: unknown) => response.writeHead(500).end(String(error)));
    }, '/v1');
    const model = new ScriptedModel(url, stop);
    holder.model = model;
    return model;
  }

  /** Adds scripts for the next requests to a model, one each. */
  script(model: string, ...scripts: Script[]): void {
    this.#scripts.set(model, [...(this.#scripts.get(model) ?? []), ...scripts]);
  }

  /** The requests to a model so far. */
  requestsTo(model: string): ChatRequest[] {
    return this.requests.filter((request) => request.model === model);
  }

  /** @throws Error if a request broke the rules of providers: it was rejected, as a provider does */
  async stop(): Promise<void> {
    await this.#stop();
    if (this.#broken.length > 0) throw new Error(`a provider would have rejected:\n${this.#broken.join('\n')}`);
  }

  async answer(request: ChatRequest, headers: IncomingHttpHeaders, response: ServerResponse): Promise<void> {
    this.requests.push(request);
    const broken = brokenRules(request);
    if (broken.length > 0) {
      this.#broken.push(`request ${this.requests.length} to ${request.model}: ${broken.join('; ')}`);
      return new ModelCall(request, headers, response).fail(400, broken.join('; '));
    }
    const script = this.#scripts.get(request.model)?.shift() ?? this.otherwise;
    await script(new ModelCall(request, headers, response));
  }

  answerModels(pathname: string, response: ServerResponse): void {
    if (!this.models) return void response.writeHead(404).end();
    const [, id] = /\/models\/(.+)$/.exec(pathname) ?? [];
    if (id === undefined) {
      const data = this.models.map((one) => ({ id: one, object: 'model' }));
      return void response.writeHead(200, JSON_TYPE).end(JSON.stringify({ object: 'list', data }));
    }
    const error = {
      message: `The model '${id}' does not exist`,
      type: 'invalid_request_error',
      code: 'model_not_found',
    };
    response.writeHead(404, JSON_TYPE).end(JSON.stringify({ error }));
  }
}

const JSON_TYPE = { 'content-type': 'application/json' };

/** One request to the model, and control over its response. */
export class ModelCall {
  readonly request: ChatRequest;
  readonly headers: IncomingHttpHeaders;
  /** Resolves when the caller has disconnected, or has received everything. */
  readonly closed: Promise<void>;
  readonly #response: ServerResponse;
  #calls = 0;

  constructor(request: ChatRequest, headers: IncomingHttpHeaders, response: ServerResponse) {
    this.request = request;
    this.headers = headers;
    this.#response = response;
    this.closed = new Promise((resolve) => response.once('close', resolve));
  }

  text(content: string): this {
    return this.delta({ content });
  }

  toolCall(name: string, args: unknown, id = `call_${name}_${this.#calls}`): this {
    const index = this.#calls++;
    const text = typeof args === 'string' ? args : JSON.stringify(args);
    this.delta({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] });
    return this.delta({ tool_calls: [{ index, function: { arguments: text } }] });
  }

  delta(delta: object, finishReason: string | null = null): this {
    return this.chunk({ choices: [{ index: 0, delta, finish_reason: finishReason }] });
  }

  /** Sends a chunk of the stream unchanged. */
  chunk(value: object | string): this {
    if (!this.#response.headersSent) this.#response.writeHead(200, { 'content-type': 'text/event-stream' });
    this.#response.write(`data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`);
    return this;
  }

  /** Sends any bytes, such as a comment. */
  raw(text: string): this {
    if (!this.#response.headersSent) this.#response.writeHead(200, { 'content-type': 'text/event-stream' });
    this.#response.write(text);
    return this;
  }

  finish(
    reason = this.#calls > 0 ? 'tool_calls' : 'stop',
    usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
  ): void {
    this.delta({}, reason);
    this.chunk({ choices: [], usage });
    this.#response.end('data: [DONE]\n\n');
  }

  fail(status: number, message: string, headers: Record<string, string> = {}, more: object = {}): void {
    this.#response.writeHead(status, { ...JSON_TYPE, ...headers });
    this.#response.end(JSON.stringify({ error: { message, type: 'test_error', ...more } }));
  }

  /** Resolves when everything so far has been sent. */
  async sent(): Promise<this> {
    await new Promise((resolve) => void this.#response.write('', resolve));
    return this;
  }

  /** Ends the response early, with a regular end of the stream. */
  end(): void {
    this.#response.end();
  }

  /** Breaks the connection. */
  cut(): void {
    this.#response.destroy();
  }
}

/** Responds with a text, one word per chunk. */
export function say(text: string): Script {
  return (call) => {
    for (const word of text.match(/\S+\s*/g) ?? []) call.text(word);
    call.finish();
  };
}

/** Responds with tool calls. */
export function use(...tools: { name: string; args?: unknown; id?: string }[]): Script {
  return (call) => {
    for (const { name, args = {}, id } of tools) call.toolCall(name, args, id);
    call.finish();
  };
}

/** A script that pauses in the middle of its response until the test releases it. */
export function held(
  before: (call: ModelCall) => void,
  after: Script,
): { script: Script; reached: Promise<ModelCall>; release: () => void } {
  const reached = Promise.withResolvers<ModelCall>();
  const gate = Promise.withResolvers<void>();
  return {
    script: async (call) => {
      before(call);
      reached.resolve(call);
      await gate.promise;
      await after(call);
    },
    reached: reached.promise,
    release: () => gate.resolve(),
  };
}
