import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startAimock, type Aimock } from '../support/aimock.ts';
import { testTurns } from '../support/aimock-turns.ts';
import { keptPort } from '../support/kept-port.ts';
import { pythonWith } from '../support/python.ts';
import { killAtEnd } from '../support/reaper.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** Turns with the unmodified proxy of LiteLLM, in front of aimock. */

const MASTER_KEY = 'sk-of-litellm';

const IN_CLEAR = /"reasoning_content": ?"It may be blue\."/;
const SIGNED = /"thinking": ?"It may be blue\.", ?"signature": ?"[^"]+"/;

/** Its routes, and the providers behind them. */
const ROUTES = [
  { provider: 'chat', model: 'gpt-5', returns: IN_CLEAR },
  { provider: 'chat', model: 'deepseek-r1', returns: IN_CLEAR },
  { provider: 'chat', model: 'claude-sonnet-4-5', returns: SIGNED },
  { provider: 'responses', model: 'gpt-5', returns: /"encrypted_content": ?"\w+=*"/ },
  { provider: 'messages', model: 'claude-sonnet-4-5', returns: SIGNED },
].map((route) => ({ ...route, name: `${route.provider}-${route.model}` }));

const KINDS = { chat: 'openai-compatible', responses: 'openai-responses', messages: 'anthropic' };

let folder: string;
let aimock: Aimock;
let proxy: ChildProcess;
let server: TestServer;
beforeAll(async () => {
  const python = await pythonWith('litellm[proxy]==1.108.7');
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-litellm-'));
  aimock = await startAimock(ROUTES.map(({ name }) => name));
  const base = `${await startProxy(python)}/v1`;
  vi.stubEnv('LITELLM_KEY', MASTER_KEY);
  vi.stubEnv('WRONG_KEY', 'sk-of-another');
  const providers = Object.entries(KINDS).map(([name, kind]) => {
    return [name, { kind, base_url: base, api_key_env: 'LITELLM_KEY' }];
  });
  const wrong = { kind: 'openai-compatible', base_url: base, api_key_env: 'WRONG_KEY' };
  const file = path.join(folder, 'providers.json');
  await writeFile(file, JSON.stringify({ default: 'chat', providers: { ...Object.fromEntries(providers), wrong } }));
  server = await startTestServer({
    env: { EVERTURN_MODEL_PROVIDERS: file, EVERTURN_MODEL_RETRY_SECONDS: '30' },
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: ({ at }) => `saw ${String(at)}` }] },
  });
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await server.stop();
  proxy.kill('SIGKILL');
  await aimock.stop();
  await rm(folder, { recursive: true });
});

/** @returns its URL, without a version */
async function startProxy(python: string): Promise<string> {
  const at = (model: string, base = `${aimock.url}/v1`) => ({ model, api_base: base, api_key: 'of-the-backend' });
  const config = {
    model_list: [
      { model_name: 'gpt-5', litellm_params: at('openai/gpt-5') },
      { model_name: 'gpt-4o', litellm_params: at('openai/gpt-4o') },
      { model_name: 'deepseek-r1', litellm_params: at('deepseek/deepseek-r1') },
      { model_name: 'claude-sonnet-4-5', litellm_params: at('anthropic/claude-sonnet-4-5', aimock.url) },
    ],
    general_settings: { master_key: MASTER_KEY },
    litellm_settings: { drop_params: true },
    // The attempts of these tests are those of Everturn.
    router_settings: { num_retries: 0, disable_cooldowns: true },
  };
  const file = path.join(folder, 'litellm.yaml');
  await writeFile(file, JSON.stringify(config));
  const port = String(await keptPort());
  // The installed program has the path of the folder in which the environment was made.
  const program = ['-c', 'from litellm import run_server; run_server()'];
  proxy = killAtEnd(
    spawn(python, [...program, '--config', file, '--host', '127.0.0.1', '--port', port], {
      // Without the last one it asks GitHub for prices.
      env: { PATH: process.env['PATH'], HOME: folder, LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
      stdio: 'ignore',
    }),
  );
  const ended = once(proxy, 'exit').then(() => Promise.reject(new Error('LiteLLM did not start')));
  const url = `http://127.0.0.1:${port}`;
  const isUp = () =>
    fetch(`${url}/health/liveliness`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isUp())) await Promise.race([sleep(200), ended]);
  ended.catch(() => undefined);
  return url;
}

describe.each(ROUTES)('$name', (route) => {
  // It ends a stream that breaks off with an error of its own.
  testTurns({ ...route, brokenAs: 'overloaded' }, () => ({ server, aimock }));
});

test.each(Object.keys(KINDS))(
  'a model that it does not have is found when the agent is stored: %s',
  async (provider) => {
    const model = { name: `${provider}/gpt-6` };
    const { status, body } = await server.api.send('PUT', '/v1/agents/misspelt', { model });
    const message = `the model provider has no model ${model.name}`;
    expect([status, body.error]).toMatchObject([422, { code: 'invalid_agent', param: 'model.name', message }]);
  },
);

async function turnWith(model: object): Promise<unknown> {
  await server.api.putAgent('named', { model });
  return server.api.turn(await server.api.createSession('named'), 'Hi').end();
}

test('a wrong key ends the turn with its words', async () => {
  // Without a database it responds so to any key but its own.
  expect(await turnWith({ name: 'wrong/gpt-5' })).toMatchObject({
    status: 'error',
    message: 'wrong/gpt-5 answered 400: No connected db.',
  });
});

test('it drops the parameters that a model does not have', async () => {
  expect(await turnWith({ name: 'chat/gpt-4o', params: { reasoning_effort: 'low', top_k: 4 } })).toMatchObject({
    status: 'done',
  });
  expect(aimock.requests.at(-1)?.body).not.toContain('reasoning_effort');
});
