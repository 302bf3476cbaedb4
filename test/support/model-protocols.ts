import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { listen } from '../../src/demo/local-server.ts';
import type { ProviderConfig } from '../../src/models/provider-file.ts';

/** A message of a model, in terms that every protocol has. */
export interface Reply {
  reasoning?: { text: string; signature: string };
  /** A search of the web by the provider, before the text, which cites what was found. */
  search?: Search;
  text?: string;
  refusal?: string;
  calls?: { id: string; name: string; args: object; signature?: string }[];
  usage?: { input: number; cached?: number; output: number; reasoning?: number };
  stop?: 'length';
}

export interface Search {
  id: string;
  query: string;
  found: { url: string; title: string; age?: string; secret: string }[];
}

/** The wire format of a provider's streams and errors. */
export interface Protocol {
  kind: Exclude<ProviderConfig['kind'], 'openai-chat'>;
  /** The events of an answer, as they are sent. */
  events: (reply: Reply) => string[];
  /** The body of an error response. */
  error: (status: number, message: string) => object;
  /** An event that reports a failure after a successful start. */
  lateError: (type: 'overloaded' | 'bad_request', message: string) => string;
}

const USAGE: NonNullable<Reply['usage']> = { input: 10, output: 5 };

function sse(data: object, event?: string): string {
  return `${event === undefined ? '' : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`;
}

const anthropic: Protocol = {
  kind: 'anthropic',
  events: ({ reasoning, search, text, refusal, calls = [], usage = USAGE, stop }) => {
    const send = (data: { type: string; [field: string]: unknown }) => sse(data, data.type);
    const { input, cached = 0, output } = usage;
    const started = {
      id: 'msg_01',
      type: 'message',
      role: 'assistant',
      model: 'claude',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: {
        input_tokens: input - cached,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: cached,
        output_tokens: 1,
      },
    };
    let index = 0;
    const block = (start: object, ...deltas: object[]): string[] => {
      const at = { index: index++ };
      return [
        send({ type: 'content_block_start', ...at, content_block: start }),
        ...deltas.map((delta) => send({ type: 'content_block_delta', ...at, delta })),
        send({ type: 'content_block_stop', ...at }),
      ];
    };
    const searchBlocks = ({ id, query, found }: Search): string[] => {
      const [first, second] = halves(JSON.stringify({ query }));
      const content = found.map(({ url, title, age = null, secret }) => {
        return { type: 'web_search_result', url, title, page_age: age, encrypted_content: secret };
      });
      return [
        ...block(
          { type: 'server_tool_use', id, name: 'web_search', input: {} },
          { type: 'input_json_delta', partial_json: first },
          { type: 'input_json_delta', partial_json: second },
        ),
        ...block({ type: 'web_search_tool_result', tool_use_id: id, content }),
      ];
    };
    const citationOf = ({ url, title, secret }: Search['found'][number]) => ({
      type: 'web_search_result_location',
      url,
      title,
      cited_text: `from ${title}`,
      encrypted_index: `INDEX-${secret}`,
    });
    const stopReason = refusal ? 'refusal' : stop ? 'max_tokens' : calls.length > 0 ? 'tool_use' : 'end_turn';
    return [
      send({ type: 'message_start', message: started }),
      send({ type: 'ping' }),
      ...(reasoning
        ? block(
            { type: 'thinking', thinking: '', signature: '' },
            { type: 'thinking_delta', thinking: reasoning.text },
            { type: 'signature_delta', signature: reasoning.signature },
          )
        : []),
      ...(search ? searchBlocks(search) : []),
      ...(text
        ? block(
            { type: 'text', text: '' },
            ...words(text).map((word) => ({ type: 'text_delta', text: word })),
            ...(search?.found ?? []).map((one) => ({ type: 'citations_delta', citation: citationOf(one) })),
          )
        : []),
      ...calls.flatMap(({ id, name, args }) =>
        block(
          { type: 'tool_use', id, name, input: {} },
          ...halves(JSON.stringify(args)).map((part) => ({ type: 'input_json_delta', partial_json: part })),
        ),
      ),
      send({
        type: 'message_delta',
        delta: {
          stop_reason: stopReason,
          stop_sequence: null,
          ...(refusal && { stop_details: { type: 'refusal', category: null, explanation: refusal } }),
        },
        usage: { output_tokens: output },
      }),
      send({ type: 'message_stop' }),
    ];
  },
  error: (status, message) => ({ type: 'error', error: { type: anthropicType(status), message } }),
  lateError: (type, message) =>
    sse(
      {
        type: 'error',
        error: { type: type === 'overloaded' ? 'overloaded_error' : 'invalid_request_error', message },
      },
      'error',
    ),
};

function anthropicType(status: number): string {
  const types: Record<number, string> = {
    401: 'authentication_error',
    404: 'not_found_error',
    429: 'rate_limit_error',
    529: 'overloaded_error',
  };
  return types[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error');
}

const google: Protocol = {
  kind: 'google',
  events: ({ reasoning, search, text, refusal, calls = [], usage = USAGE, stop }) => {
    const parts: object[] = [
      ...(reasoning ? [{ text: reasoning.text, thought: true }] : []),
      ...words(text ?? '').map((word) => ({ text: word })),
      ...calls.map(({ id, name, args, signature }) => ({
        functionCall: { id, name, args },
        ...(signature && { thoughtSignature: signature }),
      })),
      ...(reasoning && calls.length === 0 ? [{ text: '', thoughtSignature: reasoning.signature }] : []),
    ];
    const { input, cached, output, reasoning: thoughts = 0 } = usage;
    const usageMetadata = {
      promptTokenCount: input,
      candidatesTokenCount: output - thoughts,
      totalTokenCount: input + output,
      ...(cached && { cachedContentTokenCount: cached }),
      ...(thoughts && { thoughtsTokenCount: thoughts }),
    };
    const finishReason = refusal ? 'SAFETY' : stop ? 'MAX_TOKENS' : 'STOP';
    const event = (candidate: object) =>
      sse({ candidates: [{ index: 0, ...candidate }], usageMetadata, modelVersion: 'gemini', responseId: 'r1' });
    return [
      ...parts.map((part) => event({ content: { role: 'model', parts: [part] } })),
      event({ content: { role: 'model', parts: [] }, finishReason, ...(search && grounding(search, text ?? '')) }),
    ];
  },
  error: (status, message) => ({ error: { code: status, message, status: googleStatus(status) } }),
  lateError: (type, message) => {
    const code = type === 'overloaded' ? 503 : 400;
    return sse({ error: { code, message, status: googleStatus(code) } });
  },
};

function grounding({ query, found }: Search, text: string): object {
  return {
    groundingMetadata: {
      webSearchQueries: [query],
      searchEntryPoint: { renderedContent: '<div></div>' },
      groundingChunks: found.map(({ url, title }) => ({ web: { uri: url, title } })),
      groundingSupports: found.map((_, index) => ({
        segment: { endIndex: Buffer.byteLength(text), text },
        groundingChunkIndices: [index],
      })),
    },
  };
}

function googleStatus(status: number): string {
  const names: Record<number, string> = { 401: 'UNAUTHENTICATED', 404: 'NOT_FOUND', 429: 'RESOURCE_EXHAUSTED' };
  return names[status] ?? (status < 500 ? 'INVALID_ARGUMENT' : 'UNAVAILABLE');
}

const responses: Protocol = {
  kind: 'openai-responses',
  events: ({ reasoning, search, text, refusal, calls = [], usage = USAGE, stop }) => {
    let sequence = 0;
    const send = (type: string, data: object) => sse({ type, sequence_number: sequence++, ...data }, type);
    let at = 0;
    const item = (added: object, done: object, between: (place: object) => string[]): string[] => {
      const place = { output_index: at++ };
      return [
        send('response.output_item.added', { ...place, item: added }),
        ...between(place),
        send('response.output_item.done', { ...place, item: done }),
      ];
    };
    const searchItem = ({ id, query, found }: Search): string[] => {
      const begun = { type: 'web_search_call', id, status: 'in_progress' };
      const sources = found.map(({ url }) => ({ type: 'url', url }));
      const done = { ...begun, status: 'completed', action: { type: 'search', query, queries: [query], sources } };
      return item(begun, done, (place) =>
        ['in_progress', 'searching', 'completed'].map((step) =>
          send(`response.web_search_call.${step}`, { ...place, item_id: id }),
        ),
      );
    };
    const { input, cached = 0, output, reasoning: thoughts = 0 } = usage;
    const response = { id: 'resp_1', object: 'response', output: [] };
    const message = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [] };
    const status = stop ? 'incomplete' : 'completed';
    return [
      send('response.created', { response: { ...response, status: 'in_progress' } }),
      ...(reasoning
        ? item(
            { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'incomplete' },
            {
              type: 'reasoning',
              id: 'rs_1',
              summary: [{ type: 'summary_text', text: reasoning.text }],
              encrypted_content: reasoning.signature,
            },
            (place) => [
              send('response.reasoning_summary_text.delta', { ...place, summary_index: 0, delta: reasoning.text }),
            ],
          )
        : []),
      ...(search ? searchItem(search) : []),
      ...(text
        ? item(message, message, (place) => [
            ...words(text).map((word) =>
              send('response.output_text.delta', { ...place, content_index: 0, delta: word }),
            ),
            ...(search?.found ?? []).map(({ url, title }, annotation_index) =>
              send('response.output_text.annotation.added', {
                ...place,
                content_index: 0,
                annotation_index,
                annotation: { type: 'url_citation', url, title, start_index: 0, end_index: text.length },
              }),
            ),
          ])
        : []),
      ...(refusal
        ? item(message, message, (place) => [send('response.refusal.delta', { ...place, delta: refusal })])
        : []),
      ...calls.flatMap(({ id, name, args }) => {
        const call = { type: 'function_call', id: `fc_${id}`, call_id: id, name, arguments: '' };
        return item(call, { ...call, arguments: JSON.stringify(args) }, (place) =>
          halves(JSON.stringify(args)).map((delta) =>
            send('response.function_call_arguments.delta', { ...place, delta }),
          ),
        );
      }),
      send(`response.${status}`, {
        response: {
          ...response,
          status,
          incomplete_details: stop ? { reason: 'max_output_tokens' } : null,
          usage: {
            input_tokens: input,
            input_tokens_details: { cached_tokens: cached },
            output_tokens: output,
            output_tokens_details: { reasoning_tokens: thoughts },
            total_tokens: input + output,
          },
        },
      }),
    ];
  },
  error: (status, message) => ({
    error: { message, type: status < 500 ? 'invalid_request_error' : 'server_error', code: null },
  }),
  lateError: (type, message) => {
    const code = type === 'overloaded' ? 'server_error' : 'invalid_prompt';
    return sse(
      { type: 'response.failed', sequence_number: 9, response: { status: 'failed', error: { code, message } } },
      'response.failed',
    );
  },
};

/** It has neither signatures nor searches nor refusals. */
const mistral: Protocol = {
  kind: 'mistral',
  events: ({ reasoning, text, calls = [], usage = USAGE, stop }) => {
    const event = (delta: object, more: { finish_reason?: string; usage?: object } = {}): string => {
      const { finish_reason = null, ...rest } = more;
      const choices = [{ index: 0, delta, finish_reason }];
      return sse({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'mistral', choices, ...rest });
    };
    const thoughts = words(reasoning?.text ?? '').map((word) => [
      { type: 'thinking', thinking: [{ type: 'text', text: word }] },
    ]);
    const { input, cached = 0, output } = usage;
    const last = {
      finish_reason: stop ?? (calls.length > 0 ? 'tool_calls' : 'stop'),
      usage: {
        prompt_tokens: input,
        completion_tokens: output,
        total_tokens: input + output,
        num_cached_tokens: cached,
      },
    };
    // It does not send calls in pieces.
    const whole = calls.map(({ id, name, args }, index) => ({
      id,
      index,
      function: { name, arguments: JSON.stringify(args) },
    }));
    return [
      event({ role: 'assistant', content: '' }),
      ...[...thoughts, ...words(text ?? '')].map((content) => event({ content })),
      event({ content: '', ...(whole.length > 0 && { tool_calls: whole }) }, last),
      'data: [DONE]\n\n',
    ];
  },
  error: (status, message) => ({
    object: 'error',
    message,
    type: status < 500 ? 'invalid_request_error' : 'internal_server_error',
    param: null,
    code: null,
  }),
  lateError: (type, message) => {
    const code = type === 'overloaded' ? 503 : 400;
    return sse({ object: 'error', message, type: 'error', param: null, code });
  },
};

/** The protocols with a search of the web. */
export const SEARCHING: readonly (Protocol & { kind: Exclude<Protocol['kind'], 'mistral'> })[] = [
  { ...anthropic, kind: 'anthropic' },
  { ...google, kind: 'google' },
  { ...responses, kind: 'openai-responses' },
];

export const PROTOCOLS: readonly Protocol[] = [...SEARCHING, mistral];

function words(text: string): string[] {
  return text.match(/\S+\s*/g) ?? [];
}

function halves(text: string): string[] {
  const half = Math.ceil(text.length / 2);
  return [text.slice(0, half), text.slice(half)];
}

/** The behaviour of an endpoint for one request. */
export type EndpointScript = (response: ServerResponse) => void | Promise<void>;

export interface EndpointRequest {
  path: string;
  headers: IncomingHttpHeaders;
  // oxlint-disable-next-line typescript/no-explicit-any -- each test reads the body of its own protocol
  body: any;
}

/** An HTTP endpoint whose requests take the scripts in order. */
export interface Endpoint {
  url: string;
  requests: EndpointRequest[];
  script: (...scripts: EndpointScript[]) => void;
  stop: () => Promise<void>;
}

export async function startEndpoint(): Promise<Endpoint> {
  const requests: EndpointRequest[] = [];
  const scripts: EndpointScript[] = [];
  const { url, stop } = await listen((request, response) => {
    if (request.method === 'GET') {
      response.writeHead(404).end();
      return;
    }
    const answer = async (): Promise<void> => {
      requests.push({ path: request.url ?? '', headers: request.headers, body: await json(request) });
      const script = scripts.shift();
      if (script) await script(response);
      else response.writeHead(500).end('there is no script for this request');
    };
    answer().catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  }, '/v1');
  return { url, requests, script: (...more) => void scripts.push(...more), stop };
}

export const EVENTS = { 'content-type': 'text/event-stream' };

/** Sends events and ends the response. */
export function sending(...events: string[]): EndpointScript {
  return (response) => void response.writeHead(200, EVENTS).end(events.join(''));
}

export function failing(body: object, status: number, headers: Record<string, string> = {}): EndpointScript {
  return (response) =>
    void response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}
