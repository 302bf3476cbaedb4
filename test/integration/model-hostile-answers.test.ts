import { expect, onTestFinished, test } from 'vitest';
import { startHostileServer, type Hostile, type HostileAnswers } from '../support/hostile-server.ts';
import { longestStretch } from '../support/main-thread.ts';
import { listen } from '../../src/demo/local-server.ts';
import { OpenAIProvider } from '../../src/models/openai.ts';
import type { ModelChunk, ModelRequest } from '../../src/models/provider.ts';

const MAX_STRETCH_MS = 100;
const MB = 1_000_000;
const signal = new AbortController().signal;
const request: ModelRequest = {
  model: 'm',
  system: '',
  instructionsLength: 0,
  transcript: [],
  tools: [],
  params: {},
  responseFormat: undefined,
  fileContent: () => Promise.reject(new Error('there are no files')),
};

const delta = (fields: string): string => `data: {"choices":[{"index":0,"delta":{${fields}}}]}\n\n`;
const EVENTS = { contentType: 'text/event-stream' };

test.each<[string, Hostile, Partial<HostileAnswers>]>([
  ['of 200 MB', { unit: delta('"content":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"'), bytes: 200 * MB }, EVENTS],
  ['of 300 MB behind gzip', { head: 'data: ', unit: 'x', bytes: 300 * MB }, { ...EVENTS, gzip: true }],
  ['of large events', { unit: delta(`"content":"${'x'.repeat(500_000)}"`), bytes: 200 * MB }, EVENTS],
  ['that is one event of 200 MB', { head: 'data: {"x":"', unit: 'x', bytes: 200 * MB, tail: '"}\n\n' }, EVENTS],
  ['of empty objects', { head: 'data: {"x":[', unit: '{},', bytes: 3 * MB, tail: '1]}\n\n' }, EVENTS],
  ['that nests a million deep', { head: 'data: ', unit: '[', bytes: MB, tail: '\n\n' }, EVENTS],
  [
    'of large calls',
    {
      unit: delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"a","arguments":"${'x'.repeat(1000)}"}}]`),
      bytes: 9 * MB,
    },
    EVENTS,
  ],
  ['of large fields', { unit: delta(`"reasoning_details":[{"text":"${'x'.repeat(1000)}"}]`), bytes: 9 * MB }, EVENTS],
])('a response %s is cut off, and not requested again', async (_, hostile, more) => {
  const server = await startHostileServer({ methods: { '*': hostile }, ...more });
  onTestFinished(server.stop);
  const provider = new OpenAIProvider({ apiKey: 'k', baseUrl: server.url, idleSeconds: 30 });
  let failure: unknown;
  const stretch = await longestStretch(async () => {
    failure = await all(provider).catch((error: unknown) => error);
  });
  expect(failure).toMatchObject({
    isRetryable: false,
    message: expect.stringMatching(/^the model's answer (is longer|was not read)/),
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
  const provider = new OpenAIProvider({ apiKey: 'k', baseUrl: server.url, idleSeconds: 3600 });
  expect(await all(provider)).toEqual([{ content: 'hi', finishReason: 'stop' }]);
});

async function all(provider: OpenAIProvider): Promise<ModelChunk[]> {
  const chunks: ModelChunk[] = [];
  for await (const chunk of provider.stream(request, signal)) chunks.push(chunk);
  return chunks;
}
