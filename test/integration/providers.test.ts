import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import { loadConfig } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { folded } from '../support/api-client.ts';
import {
  EVENTS,
  failing,
  PROTOCOLS,
  sending,
  startEndpoint,
  type Endpoint,
  type EndpointScript,
  type Protocol,
} from '../support/model-protocols.ts';
import { user } from '../support/runs.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** Turns with the models of each kind of provider. */

/** 10 input tokens and 5 output tokens cost 10 * 3 + 5 * 15 millionths of a dollar. */
const PRICE = { input: 3, output: 15 };

/** Two answers, and one that breaks off: Anthropic has counted its input and a token, Google everything so far. */
const COUNTED = {
  anthropic: { total_cost_in_usd: 0.000255, unreported_attempts: 0 },
  google: { total_cost_in_usd: 0.000315, unreported_attempts: 0 },
  'openai-responses': { total_cost_in_usd: 0.00021, unreported_attempts: 1 },
  mistral: { total_cost_in_usd: 0.00021, unreported_attempts: 1 },
};

let folder: string;
let endpoints: Map<Protocol, Endpoint>;
let server: TestServer;
const logged: string[] = [];
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-providers-'));
  endpoints = new Map(
    await Promise.all(PROTOCOLS.map(async (one): Promise<[Protocol, Endpoint]> => [one, await startEndpoint()])),
  );
  const models = { 'm-1': { price: PRICE } };
  const providers = [...endpoints].map(([{ kind }, { url }]) => [kind, { kind, base_url: url, models }]);
  const file = path.join(folder, 'providers.json');
  await writeFile(file, JSON.stringify({ default: 'anthropic', providers: Object.fromEntries(providers) }));
  server = await startTestServer({
    log: createLogger({ logLevel: 'warn' }, { write: (line) => void logged.push(line) }),
    env: { EVERTURN_MODEL_PROVIDERS: file },
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: ({ at }) => `saw ${String(at)}` }] },
  });
});
afterAll(async () => {
  await server.stop();
  for (const endpoint of endpoints.values()) await endpoint.stop();
  await rm(folder, { recursive: true });
});

describe.each(PROTOCOLS)('$kind', (protocol) => {
  const { kind, events } = protocol;

  async function open(...scripts: EndpointScript[]) {
    const endpoint = endpoints.get(protocol);
    if (!endpoint) throw new Error('each protocol has an endpoint');
    const before = endpoint.requests.length;
    endpoint.script(...scripts);
    const params = { reasoning_effort: 'low' };
    await server.api.putAgent(kind, { ...onTestServer, model: { name: `${kind}/m-1`, params } });
    const sessionId = await server.api.createSession(kind);
    return {
      sessionId,
      script: endpoint.script,
      requests: () => endpoint.requests.slice(before).map(({ body }) => body),
    };
  }

  /** The connection breaks after some events. */
  const cut: EndpointScript = async (response) => {
    response.writeHead(200, EVENTS);
    for (const event of events({ text: 'I was about to say' }).slice(0, -3)) {
      await new Promise((resolve) => void response.write(event, resolve));
    }
    response.destroy();
  };

  test('a turn with tools, whose first answer breaks off, keeps reasoning and signatures across steps and turns', async () => {
    const reasoning = { text: 'the sea, then', signature: 'SIGNATURE-1' };
    const call = (id: string, at: string) => ({ id, name: 'look', args: { at }, signature: 'SIGNATURE-1' });
    const chat = await open(
      cut,
      sending(...events({ reasoning, text: 'Let me look. ', calls: [call('c1', 'sea'), call('c2', 'sky')] })),
      sending(...events({ text: 'All is blue.' })),
    );
    const reader = server.api.turn(chat.sessionId, 'what do you see?');
    await reader.says('I was');
    const late = server.api.subscribe(chat.sessionId, await reader.turnId());
    expect(await reader.end()).toMatchObject({
      status: 'done',
      output: { content: 'All is blue.', provider: kind, model: 'm-1' },
      metrics: { model_calls: 2, tool_calls: 2, ...COUNTED[kind] },
    });
    const whole = folded(await reader.done);
    expect(folded(await late.done)).toEqual(whole);
    expect(whole[2]).toMatchObject({
      content: 'Let me look. ',
      reasoning_content: 'the sea, then',
      tool_calls: [{ function: { name: 'look', arguments: '{"at":"sea"}' } }, { id: expect.any(String) }],
      attempts: [{ provider: kind, model: 'm-1', failure: 'broken_stream' }],
    });
    const results = expect.arrayContaining(
      ['saw sea', 'saw sky'].map((seen) => expect.objectContaining({ content: seen })),
    );
    expect(whole.slice(3, 5)).toEqual(results);

    chat.script(sending(...events({ text: 'Still blue.' })));
    expect(await server.api.turn(chat.sessionId, 'and now?').end()).toMatchObject({
      output: { content: 'Still blue.' },
    });
    const [first, again, second, next] = chat.requests();
    expect(again).toEqual(first);
    for (const request of [second, next]) {
      const sent = JSON.stringify(request);
      // Mistral has no signatures, and gets the thought itself.
      const thought = kind === 'mistral' ? 'the sea, then' : 'SIGNATURE-1';
      for (const part of [thought, 'Let me look. ', 'saw sea', 'saw sky']) expect(sent).toContain(part);
      expect(sent).not.toContain('I was');
    }
    expect(JSON.stringify(next)).toContain('All is blue.');
  });

  test('a run is rejected with the option that the protocol does not have', async () => {
    const agent = { model: `${kind}/m-1`, tool_choice: { type: 'auto' }, seed: 1, metadata: { team: 'a' } };
    const { status, body } = await server.api.send('POST', '/v1/runs', { agent, input: [user('Hi')] });
    const param = kind === 'google' || kind === 'mistral' ? 'agent.metadata' : 'agent.seed';
    expect([status, body.error]).toMatchObject([422, { code: 'feature_not_available', param }]);
  });

  test.skipIf(kind === 'mistral')('an image is sent, and a refusal ends the turn', async () => {
    const chat = await open(sending(...events({ refusal: 'I cannot describe people.' })));
    const image = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1').toString('base64');
    const content = [
      { type: 'text', text: 'who is it?' },
      { type: 'file', name: 'a.png', data: `data:image/png;base64,${image}` },
    ];
    const end = await server.api.turn(chat.sessionId, [{ type: 'user.message', content }]).end();
    expect(JSON.stringify(chat.requests()[0])).toContain(image);
    const refused = { refusal: 'I cannot describe people.' };
    expect(end).toMatchObject({
      status: 'done',
      output: kind === 'google' ? { finish_reason: 'content_filter' } : refused,
    });
  });

  test('an error that a retry would meet again ends the turn with the message of the provider', async () => {
    const chat = await open(failing(protocol.error(400, 'that is no role'), 400));
    expect(await server.api.turn(chat.sessionId, 'hi').end()).toMatchObject({
      status: 'error',
      message: expect.stringContaining('that is no role'),
    });
    expect(chat.requests()).toHaveLength(1);
  });
});

/** No provider has this prefix, and the default one does not accept slashes. */
const MISSPELT = 'antropic/m-1';
const ADVICE = 'no model provider has the name "antropic": did you mean anthropic/m-1?';

test('a model with the prefix of no provider is rejected by all APIs', async () => {
  const spec = { model: { name: 'anthropic/m-1', fallbacks: [MISSPELT] } };
  const place = 'model.fallbacks.0';
  for (const [method, path, body, param] of [
    ['PUT', '/v1/agents/misspelt', spec, place],
    ['POST', '/v1/agents/draft-sessions', { agent_spec: spec }, `agent_spec.${place}`],
    ['POST', '/v1/runs', { agent: { model: MISSPELT }, input: [user('Hi')] }, 'agent.model'],
  ] as const) {
    const { status, body: answer } = await server.api.send(method, path, body);
    expect([status, answer.error]).toMatchObject([422, { code: 'invalid_agent', param, message: ADVICE }]);
  }
  const agent = { name: 'misspelt', description: '', environments: [], model: MISSPELT };
  const { status, body } = await server.api.send('POST', '/api/v2/sessions', { agent, messages: 'Hi' });
  expect([status, body.detail[0]]).toMatchObject([422, { loc: ['body', 'agent', 'model'], msg: ADVICE }]);
});

test('an agent that was stored with such a model runs as before, with a warning', async () => {
  const { database, encryptionKeys } = loadConfig({
    DATABASE_URL: server.database.url,
    EVERTURN_ENCRYPTION_KEYS: process.env['TEST_ENCRYPTION_KEYS'],
  });
  await using cleanup = new AsyncDisposableStack();
  const catalog = await Catalog.open(database, pino({ level: 'silent' }), new Cipher(encryptionKeys));
  cleanup.defer(() => catalog.close());
  await catalog.agents.put('old', { model: { name: MISSPELT } }, new Date().toISOString());
  expect((await server.api.get('/v1/agents/old')).data.warnings).toEqual([`model.name: ${ADVICE}`]);

  const [protocol, endpoint] = [...endpoints].find(([{ kind }]) => kind === 'anthropic') ?? [];
  if (!protocol || !endpoint) throw new Error('Anthropic is one of the protocols');
  const answers = ['a turn', 'a run', 'a run with other instructions'];
  endpoint.script(...answers.map((text) => sending(...protocol.events({ text }))));
  const before = endpoint.requests.length;
  const sessionId = await server.api.createSession('old');
  expect(await server.api.turn(sessionId, 'Hi').end()).toMatchObject({ output: { content: 'a turn' } });
  for (const [params, text] of [
    [undefined, answers[1]],
    [{ instructions: 'Be brief.' }, answers[2]],
  ]) {
    const run = await server.api.send('POST', '/v1/agents/old/runs', { input: [user('Hi')], params });
    expect(run.body).toMatchObject({ status: 'completed', content: [{ text }] });
  }
  const models = endpoint.requests.slice(before).map(({ body }) => body.model);
  expect(models).toEqual(answers.map(() => MISSPELT));
  expect(logged.filter((line) => line.includes(MISSPELT))).toHaveLength(1);

  const config = { sandbox: { enabled: false, network_polcy: 'none' } };
  await catalog.agents.put('older', { model: { name: 'anthropic/m-1' }, config }, new Date().toISOString());
  const unknownKey = 'config.sandbox: unknown key "network_polcy": do you mean "network_policy"?';
  expect((await server.api.get('/v1/agents/older')).data.warnings).toEqual([unknownKey]);
  endpoint.script(...[1, 2].map(() => sending(...protocol.events({ text: 'Hi' }))));
  const olderSession = await server.api.createSession('older');
  for (const text of ['Hi', 'Again']) await server.api.turn(olderSession, text).end();
  expect(logged.filter((line) => line.includes('network_polcy'))).toHaveLength(1);

  await server.api.putAgent('chief', { model: { name: 'anthropic/m-1' }, agents: ['old'] });
  const chief = { name: 'boss', description: '', environments: [], model: 'anthropic/m-1', subagents: ['old'] };
  const created = await server.api.send('POST', '/api/v2/agents', { ...chief, instructions: 'For {{compny}}.' });
  expect(created.status).toBe(201);
  expect((await server.api.send('PUT', '/api/v2/agents/boss', created.body)).status).toBe(200);
  expect(logged.filter((line) => line.includes('compny') && line.includes('may not work'))).toHaveLength(1);
  const inline = { ...chief, subagents: [{ ...chief, name: 'own', model: MISSPELT, subagents: [] }] };
  expect((await server.api.send('POST', '/api/v2/agents', { ...inline, name: 'third' })).status).toBe(422);
  const changed = { input: [user('Hi')], params: { model: MISSPELT } };
  expect((await server.api.send('POST', '/v1/agents/old/runs', changed)).status).toBe(422);
});
