import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { startHostileServer, type Hostile, type HostileAnswers } from '../support/hostile-server.ts';
import { longestStretch, MAX_STRETCH_MS } from '../support/main-thread.ts';
import { modelRequest } from '../support/model-request.ts';
import { listen } from '../../src/demo/local-server.ts';
import { chatAccess, openProviders } from '../../src/models/open-providers.ts';
import { openAIProvider } from '../../src/models/openai/chat.ts';
import type { ProviderConfig } from '../../src/models/provider-file.ts';
import type { ModelChunk, ModelProvider } from '../../src/models/provider.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';

const log = pino({ level: 'silent' });
const MB = 1_000_000;
const signal = new AbortController().signal;
const request = modelRequest();

const EVENTS = { contentType: 'text/event-stream' };

/** The beginning of an answer, and the events with which it continues. */
interface Events {
  head: string;
  text: (text: string) => string;
  /** The beginning of a call with arguments; undefined if the protocol sends these as text. */
  call: (text: string) => string;
  /** Fields that are sent back to the provider. */
  field: (text: string) => string;
}

const sse = (data: string): string => `data: ${data}\n\n`;
const chatDelta = (fields: string): string => sse(`{"choices":[{"index":0,"delta":{${fields}}}]}`);
const googlePart = (part: string): string => sse(`{"candidates":[{"content":{"role":"model","parts":[${part}]}}]}`);

const PROTOCOLS: Record<ProviderConfig['kind'], Events> = {
  'openai-chat': {
    head: '',
    text: (text) => chatDelta(`"content":"${text}"`),
    call: (text) => chatDelta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"a","arguments":"${text}"}}]`),
    field: (text) => chatDelta(`"reasoning_details":[{"text":"${text}"}]`),
  },
  'openai-responses': {
    head: sse('{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}'),
    text: (text) => sse(`{"type":"response.output_text.delta","output_index":0,"delta":"${text}"}`),
    call: (text) =>
      sse(
        `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"${text}","name":"a"}}`,
      ),
    field: (text) =>
      sse(
        `{"type":"response.output_item.done","output_index":2,"item":{"type":"reasoning","id":"r","encrypted_content":"${text}"}}`,
      ),
  },
  anthropic: {
    head: [
      '{"type":"message_start","message":{"id":"m","model":"m","usage":{"input_tokens":1,"output_tokens":1}}}',
      '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
      '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"a","input":{}}}',
    ]
      .map(sse)
      .join(''),
    text: (text) => sse(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"${text}"}}`),
    call: (text) =>
      sse(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"${text}"}}`),
    field: (text) =>
      sse(`{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"${text}"}}`) +
      sse('{"type":"content_block_stop","index":2}'),
  },
  google: {
    head: '',
    text: (text) => googlePart(`{"text":"${text}"}`),
    call: (text) => googlePart(`{"functionCall":{"name":"a","args":{"a":"${text}"}}}`),
    field: (text) => googlePart(`{"functionCall":{"name":"a","args":{}},"thoughtSignature":"${text}"}`),
  },
  mistral: {
    head: '',
    text: (text) => chatDelta(`"content":"${text}"`),
    call: (text) => chatDelta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"a","arguments":"${text}"}}]`),
    field: (text) => chatDelta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"${text}"}]}]`),
  },
};
const KINDS = Object.keys(PROTOCOLS) as ProviderConfig['kind'][];

function open(kind: ProviderConfig['kind'], url: string): ModelProvider {
  const { providers } = chatAccess('', url);
  const access = new Map([...providers].map(([name, config]) => [name, { ...config, kind }]));
  const models = openProviders(
    { name: '', defaultName: 'openai', providers: access },
    {
      firstChunkSeconds: 30,
      idleSeconds: 30,
      metrics: new Metrics(),
      log,
      shared: undefined,
      onResponse: () => undefined,
    },
  );
  return models.resolve('m').provider;
}

const hostile: [string, (events: Events) => Hostile, Partial<HostileAnswers>][] = [
  ['of 200 MB', ({ head, text }) => ({ head, unit: text('x'.repeat(36)), bytes: 200 * MB }), EVENTS],
  ['of 300 MB behind gzip', () => ({ head: 'data: ', unit: 'x', bytes: 300 * MB }), { ...EVENTS, gzip: true }],
  ['of large events', ({ head, text }) => ({ head, unit: text('x'.repeat(500_000)), bytes: 200 * MB }), EVENTS],
  ['that is one event of 200 MB', () => ({ head: 'data: {"x":"', unit: 'x', bytes: 200 * MB, tail: '"}\n\n' }), EVENTS],
  ['of empty objects', () => ({ head: 'data: {"x":[', unit: '{},', bytes: 3 * MB, tail: '1]}\n\n' }), EVENTS],
  ['that nests a million deep', () => ({ head: 'data: ', unit: '[', bytes: MB, tail: '\n\n' }), EVENTS],
  ['of large calls', ({ head, call }) => ({ head, unit: call('x'.repeat(1000)), bytes: 9 * MB }), EVENTS],
  ['of large fields', ({ head, field }) => ({ head, unit: field('x'.repeat(1000)), bytes: 9 * MB }), EVENTS],
];

test.each(KINDS.flatMap((kind) => hostile.map(([name, answer, more]) => ({ kind, name, answer, more }))))(
  'a response of $kind $name is cut off, and not requested again',
  async ({ kind, answer, more }) => {
    const server = await startHostileServer({ methods: { '*': answer(PROTOCOLS[kind]) }, ...more });
    onTestFinished(server.stop);
    const provider = open(kind, server.url);
    let failure: unknown;
    const stretch = await longestStretch(async () => {
      failure = await all(provider).catch((error: unknown) => error);
    });
    expect(failure).toMatchObject({
      isRetryable: false,
      message: expect.stringMatching(/^the model's answer (is longer|was not read)/),
    });
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  },
);

/** Two values for the gauge, which counts brackets and commas. */
const UNIT = '{"text":1},';

/** Just below the limit of the values in one text, in places that the adapters validate. */
test.each([
  ['anthropic', 4_900, '{"type":"message_start","message":{"id":"m","content":[', ']}}'],
  ['google', 4_900, '{"candidates":[{"content":{"role":"model","parts":[', ']}}]}'],
  ['openai-responses', 49_000, '{"type":"response.completed","response":{"output":[', ']}}'],
] as const)('an event of %s with %i values does not stall the process', async (kind, values, head, tail) => {
  const server = await startHostileServer({
    methods: {
      '*': { head: `data: ${head}`, unit: UNIT, bytes: (values / 2 - 10) * UNIT.length, tail: `{}${tail}\n\n` },
    },
    ...EVENTS,
  });
  onTestFinished(server.stop);
  const stretch = await longestStretch(async () => {
    await all(open(kind, server.url)).catch(() => undefined);
  });
  expect(stretch).toBeLessThan(MAX_STRETCH_MS);
});

test('a connection that the server leaves open after its response is not waited for', async () => {
  const server = await listen((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n');
  }, '/v1');
  onTestFinished(server.stop);
  // Only the end of the response can end this in time: the allowed silence is longer than the test.
  const provider = openAIProvider({
    apiKey: 'k',
    baseUrl: server.url,
    headers: {},
    firstChunkSeconds: 3600,
    idleSeconds: 3600,
  });
  expect(await all(provider)).toEqual([{ content: 'hi', finishReason: 'stop' }]);
});

async function all(provider: ModelProvider): Promise<ModelChunk[]> {
  const chunks: ModelChunk[] = [];
  for await (const chunk of provider.stream(request, signal)) chunks.push(chunk);
  return chunks;
}
