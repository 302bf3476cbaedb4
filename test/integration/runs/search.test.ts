import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Run } from '../../../src/api/runs/wire/run.ts';
import { SEARCHING, sending, startEndpoint, type Endpoint } from '../../support/model-protocols.ts';
import { RunFold } from '../../support/run-fold.ts';
import { RunStream, textOfRun, user } from '../../support/runs.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Runs whose provider searches the web itself. */

/** Google's adapter lists which of its models have a search; the others take any name. */
const MODEL = 'gemini-2.5-flash';

const KINDS = SEARCHING.map(({ kind }) => kind);

let server: TestServer;
let folder: string;
const endpoints = new Map<string, Endpoint>();
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-search-'));
  for (const kind of KINDS) endpoints.set(kind, await startEndpoint());
  const chat = { kind: 'openai-chat', base_url: 'http://127.0.0.1:9/v1', models: { [MODEL]: {} } };
  const others = KINDS.map((kind) => [kind, { kind, base_url: endpoints.get(kind)?.url, models: { [MODEL]: {} } }]);
  const file = path.join(folder, 'providers.json');
  await writeFile(file, JSON.stringify({ default: 'chat', providers: { chat, ...Object.fromEntries(others) } }));
  server = await startTestServer({ env: { EVERTURN_MODEL_PROVIDERS: file } });
});
afterAll(async () => {
  await server.stop();
  for (const endpoint of endpoints.values()) await endpoint.stop();
  await rm(folder, { recursive: true });
});

const found = [{ url: 'https://a.example/sea', title: 'The sea', age: 'May 3', secret: 'SECRET-A' }];
const search = { id: 'search_1', query: 'colour of the sea', found };
const tools = [{ type: 'web_search' }];

test.each(SEARCHING)(
  'a search of $kind and what it has found are parts of the answer, streamed and sent back',
  async ({ kind, events }) => {
    const endpoint = endpoints.get(kind);
    endpoint?.script(sending(...events({ search, text: 'It is blue.' })), sending(...events({ text: 'Yes.' })));
    const agent = { model: `${kind}/${MODEL}`, tools };
    const input = [user('Which colour has the sea?')];
    const stream = RunStream.open(server.api, '/v1/runs', { body: { agent, input, stream: true } });
    const end = await stream.end();
    if (end.event !== 'response') throw new Error(JSON.stringify(end));
    expect(end.status).toBe('completed');
    expect(textOfRun(end)).toBe('It is blue.');
    const parts = Object.groupBy(end.content, ({ type }) => type);
    const call = {
      type: 'web_search',
      action: { type: 'search', queries: ['colour of the sea'] },
      status: 'completed',
    };
    expect(parts['tool-call']).toMatchObject([{ call }]);
    const sources = [{ url: 'https://a.example/sea' }];
    expect(parts['tool-result']).toMatchObject([{ result: { type: 'web_search', sources }, status: 'completed' }]);
    expect(parts.text?.at(-1)).toMatchObject({ citations: [{ source: 'https://a.example/sea', title: 'The sea' }] });
    const fold = new RunFold();
    for (const event of stream.events.filter(({ event }) => event === 'partial')) fold.add(event);
    expect(fold.parts.map(({ type }) => type)).toEqual(end.content.map(({ type }) => type));
    const read = await server.api.get<Run>(`/v1/runs/${end.id}`);
    expect(read.output).toEqual(end.output);
    const next = { agent, input: [...input, ...end.output, user('Sure?')] };
    const { body } = await server.api.send<Run>('POST', '/v1/runs', next);
    expect([body.status, textOfRun(body)]).toEqual(['completed', 'Yes.']);
    // Google does not get what it has found.
    expect(JSON.stringify(endpoint?.requests[1]?.body).includes('colour of the sea')).toBe(kind !== 'google');
    const log = await server.api.get(`/v1/runs/${end.id}/events`);
    expect(JSON.stringify(log.data)).not.toContain('a.example');
  },
);

test('22: a search is refused if a model of the agent has none, or not with this option', async () => {
  const refusal = async (agent: object): Promise<unknown[]> => {
    const { status, body } = await server.api.send('POST', '/v1/runs', { agent, input: [user('Go')] });
    return [status, body.error?.code, body.error?.param];
  };
  const tool = { name: 'look', description: 'looks', parameters: { type: 'object' } };
  const refused = [422, 'unsupported_part', 'agent.tools[1]'];
  expect(await refusal({ model: `chat/${MODEL}`, tools: [tool, ...tools] })).toEqual(refused);
  const limited = { model: `google/${MODEL}`, tools: [{ type: 'web_search', max_uses: 2 }] };
  expect(await refusal(limited)).toEqual([422, 'unsupported_part', 'agent.tools[0].max_uses']);
});
