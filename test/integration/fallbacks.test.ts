import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { failing, PROTOCOLS, sending, startEndpoint, type Endpoint, type Reply } from '../support/model-protocols.ts';
import { say, use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** 10 input tokens and 5 output tokens cost 10 * 3 + 5 * 15 millionths of a dollar. */
const PRICE = { input: 3, output: 15 };
const COST = 0.000105;

const FALLBACK = { model: { name: '', fallbacks: ['claude/claude-x'] } };

let folder: string;
let claude: Endpoint;
let server: TestServer;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-fallbacks-'));
  claude = await startEndpoint();
  const file = path.join(folder, 'providers.json');
  const models = { 'claude-x': { price: PRICE } };
  await writeFile(file, JSON.stringify({ providers: { claude: { kind: 'anthropic', base_url: claude.url, models } } }));
  server = await startTestServer({
    // A model with a fallback is given up after its second failure, on a slow machine after its first.
    env: { EVERTURN_MODEL_PROVIDERS: file, EVERTURN_MODEL_RETRY_SECONDS: '1' },
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => 'the sea' }] },
  });
});
afterAll(async () => {
  await server.stop();
  await claude.stop();
  await rm(folder, { recursive: true });
});

function claudeSays(reply: Reply) {
  const protocol = PROTOCOLS.find(({ kind }) => kind === 'anthropic');
  return sending(...(protocol?.events(reply) ?? []));
}

const cut: Script = async (call) => {
  await call.text('I was ').sent();
  call.cut();
};

function listed(chat: Chat): Promise<{ event: { type: string } }[]> {
  return server.api.list(`${chat.path}/events`);
}

test('a model that fails is replaced by the fallback in the same message, which readers see from its beginning', async () => {
  let isBack = false;
  const first: Script = (call) => (isBack ? say('the first is back') : cut)(call);
  const chat = await server.chat({ scripts: [first, first, first], spec: { ...FALLBACK, ...onTestServer } });
  const reasoning = { text: 'I should look', signature: 'SIGNATURE-1' };
  claude.script(
    claudeSays({ reasoning, text: 'Let me look. ', calls: [{ id: 'toolu_1', name: 'look', args: {} }] }),
    claudeSays({ text: 'I see the sea.' }),
  );
  const before = claude.requests.length;
  const reader = chat.turn('what do you see?');
  await reader.says('I was ');
  const late = server.api.subscribe(chat.sessionId, await reader.turnId());
  const frames = await reader.done;
  const failures = chat.requests().length;
  expect([1, 2]).toContain(failures);
  const attempts = Array.from({ length: failures }, () => ({
    provider: 'openai',
    model: chat.agent,
    failure: 'broken_stream',
  }));
  const [, , message, , last] = folded(frames);
  expect(message).toMatchObject({
    content: 'Let me look. ',
    reasoning_content: 'I should look',
    provider: 'claude',
    model: 'claude-x',
    attempts,
    usage: { cost_in_usd: COST },
  });
  expect(folded(await late.done)).toEqual(folded(frames));
  expect((await listed(chat)).map(({ event }) => event).toReversed()).toEqual(folded(frames));
  // The rest of the turn stays with the fallback, and gives its signature back to it.
  expect(last).toMatchObject({ content: 'I see the sea.', provider: 'claude' });
  expect(last).not.toHaveProperty('attempts');
  expect(chat.requests()).toHaveLength(failures);
  const [toBegin, toGoOn] = claude.requests.slice(before);
  expect(JSON.stringify(toBegin?.body)).not.toContain('SIGNATURE-1');
  expect(JSON.stringify(toGoOn?.body)).toContain('SIGNATURE-1');
  expect(await reader.end()).toMatchObject({
    status: 'done',
    output: { provider: 'claude', model: 'claude-x' },
    metrics: {
      total_cost_in_usd: COST * 2,
      unreported_attempts: failures,
      model_calls: 2,
      tool_calls: 1,
      waited_ms: 0,
    },
  });

  const sessionCost = async () => {
    const { data }: { data: { metrics: { total_cost_in_usd?: number } } } = await server.api.get(chat.path);
    return data.metrics.total_cost_in_usd;
  };
  await expect.poll(sessionCost).toBe(COST * 2);

  isBack = true;
  const next = chat.turn('and now?');
  expect(await next.end()).toMatchObject({ output: { content: 'the first is back', provider: 'openai' } });
  // The price of that model is unknown.
  expect((await next.end()).metrics).not.toHaveProperty('total_cost_in_usd');
  await expect.poll(sessionCost).toBeUndefined();
  expect(await server.api.get(chat.path)).toMatchObject({ data: { metrics: { model_calls: 3, tool_calls: 1 } } });
  const sent = JSON.stringify(chat.requests().at(-1));
  expect(sent).toContain('Let me look. ');
  expect(sent).not.toContain('SIGNATURE-1');
  expect(sent).not.toContain('I should look');
});

test('a provider that asks for a long wait is not waited for', async () => {
  const chat = await server.chat({
    scripts: [(call) => call.fail(429, 'slow down', { 'retry-after': '3600' })],
    spec: FALLBACK,
  });
  claude.script(claudeSays({ text: 'here I am' }));
  expect(await chat.turn('hi').end()).toMatchObject({
    status: 'done',
    output: { content: 'here I am', attempts: [{ provider: 'openai', failure: 'rate_limited' }] },
    metrics: { unreported_attempts: 0 },
  });
});

test('a request that the provider rejects is not sent to another one', async () => {
  const chat = await server.chat({ scripts: [(call) => call.fail(400, 'no such role')], spec: FALLBACK });
  const before = claude.requests.length;
  expect(await chat.turn('hi').end()).toMatchObject({
    status: 'error',
    message: expect.stringContaining('no such role'),
  });
  expect(claude.requests.length).toBe(before);
});

test('if the last model fails too, the turn ends with its error', async () => {
  const chat = await server.chat({
    scripts: [(call) => call.fail(529, 'overloaded', { 'retry-after': '60' })],
    spec: FALLBACK,
  });
  claude.script(failing({ type: 'error', error: { type: 'authentication_error', message: 'bad key' } }, 401));
  const reader = chat.turn('hi');
  expect(await reader.end()).toMatchObject({ status: 'error', message: 'claude/claude-x answered 401: bad key' });
  expect(folded(await reader.done)[1]).toMatchObject({
    finish_reason: 'error',
    provider: 'claude',
    attempts: [{ provider: 'openai', failure: 'overloaded' }],
  });
});

test('a cancelled turn ends while its model is waited for', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'look' })], spec: { ...FALLBACK, ...onTestServer } });
  const asked = Promise.withResolvers<void>();
  chat.script(() => asked.resolve());
  const reader = chat.turn('hi');
  await asked.promise;
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
});

test('an unknown fallback is rejected with its place', async () => {
  const openai = await startTestServer();
  try {
    openai.model.models = ['known'];
    const spec = { model: { name: 'known', fallbacks: ['known', 'unknown'] } };
    expect(await openai.api.send('PUT', '/v1/agents/a', spec)).toMatchObject({
      status: 422,
      body: { error: { param: 'model.fallbacks.1', message: expect.stringContaining('unknown') } },
    });
  } finally {
    await openai.stop();
  }
});
