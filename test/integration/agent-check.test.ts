import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TriedPart } from '../../src/agents/try-agent.ts';
import { newId } from '../../src/engine/new-id.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { ApiClient } from '../support/api-client.ts';
import { ProtectedMcpServer } from '../support/authorization-server.ts';
import { everturn } from '../support/command-line.ts';
import { keptPort } from '../support/kept-port.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** An agent is tried before it is used, and a later failure is reported. */

type Line = Record<string, unknown>;

const lines: Line[] = [];
let folder: string;
let refused: string;
let notes: ProtectedMcpServer;
let page: TestMcpServer;
let server: TestServer;
let root: ApiClient;
/** The settings of the server, for commands. */
let env: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-agents-'));
  refused = `127.0.0.1:${await keptPort()}`;
  notes = await ProtectedMcpServer.start();
  page = await TestMcpServer.start({
    tools: [],
    guard: () => Promise.resolve({ status: 200, contentType: 'text/html', body: '<html>Welcome</html>' }),
  });
  const providers = path.join(folder, 'providers.json');
  const down = { kind: 'openai-chat', base_url: `http://${refused}/v1` };
  await writeFile(providers, JSON.stringify({ providers: { down } }));
  const settings = {
    EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann',
    EVERTURN_MODEL_PROVIDERS: providers,
    EVERTURN_MODEL_RETRY_SECONDS: '1',
    EVERTURN_ALLOW_PRIVATE_URLS: 'true',
  };
  server = await startTestServer({
    env: settings,
    servers: { notes: { url: notes.mcp.url } },
    mcp: { tools: [{ name: 'find' }] },
    log: createLogger({ logLevel: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line) as Line) }),
  });
  root = new ApiClient(server.server.url, 'key-of-root');
  env = {
    ...settings,
    EVERTURN_DATA: server.dataDir,
    EVERTURN_MCP_SERVERS: path.join(server.dataDir, 'mcp.json'),
    DATABASE_URL: server.database.url,
    OPENAI_API_KEY: 'test-key',
    OPENAI_BASE_URL: server.model.url,
    ...(process.env['TEST_ENCRYPTION_KEYS'] && { EVERTURN_ENCRYPTION_KEYS: process.env['TEST_ENCRYPTION_KEYS'] }),
  };
});
afterAll(async () => {
  await server.stop();
  await notes.stop();
  await page.stop();
  await rm(folder, { recursive: true });
});

const registered = (name: string) => ({ type: 'truefoundry-mcp-registry' as const, name });
const inline = (name: string, url: string) => ({ type: 'inline' as const, name, url });

/** An agent of which some parts work, and the result of a check of them. */
function mixed(name = newId('req')): { name: string; spec: object; checks: object[] } {
  const servers = [registered('test'), registered('notes'), inline('off', `http://${refused}/mcp?key=of-the-agent`)];
  const part = { seconds: expect.any(Number) };
  const ok = { ...part, status: 'ok', reason: null };
  return {
    name,
    spec: { model: { name, fallbacks: ['down/m'] }, mcp_servers: [...servers, inline('page', page.url)] },
    checks: [
      { type: 'model', name, address: new URL(server.model.url).host, ...ok },
      {
        type: 'model',
        name: 'down/m',
        address: refused,
        status: 'failed',
        reason: expect.stringMatching(
          /^the model cannot be reached \(connect ECONNREFUSED .*\): check that the server is running/,
        ),
        ...part,
      },
      { type: 'mcp_server', name: 'test', address: new URL(server.mcp.url).host, ...ok },
      {
        type: 'mcp_server',
        name: 'notes',
        address: new URL(notes.mcp.url).host,
        status: 'sign_in_required',
        reason: 'requires the user to sign in',
        ...part,
      },
      {
        type: 'mcp_server',
        name: 'off',
        address: refused,
        status: 'failed',
        reason: 'refuses connections: is it running?',
        ...part,
      },
      {
        type: 'mcp_server',
        name: 'page',
        address: new URL(page.url).host,
        status: 'failed',
        reason: expect.any(String),
        ...part,
      },
    ],
  };
}

interface Answer {
  data: { version: number; checks?: TriedPart[] };
}

test('PUT with check=true stores the agent, and says of each model and server whether it works', async () => {
  const { name, spec, checks } = mixed();
  const { status, body } = await root.send<Answer>('PUT', `/v1/agents/${name}?check=true`, spec);
  expect([status, body.data.version]).toEqual([200, 1]);
  expect(body.data.checks).toEqual(checks);
  expect(JSON.stringify(body.data.checks)).not.toContain('of-the-agent');
  const { data } = await root.get<Answer>(`/v1/agents/${name}`);
  expect(data.version).toBe(1);
  expect(data).not.toHaveProperty('checks');
});

test('without it no model is asked, and no registered server', async () => {
  const { name, spec } = mixed();
  const received = server.mcp.received.length;
  for (const query of ['', '?check=false']) {
    const { body } = await root.send<Answer>('PUT', `/v1/agents/${name}${query}`, spec);
    expect(body.data).not.toHaveProperty('checks');
  }
  expect(server.model.requestsTo(name)).toEqual([]);
  expect(server.mcp.received.length).toBe(received);
  expect((await root.send('PUT', `/v1/agents/${name}?check=maybe`, spec)).status).toBe(400);
});

test('nothing is tried of an agent that is not accepted, or whose author may write none', async () => {
  const { name, spec } = mixed();
  const received = server.mcp.received.length;
  const ann = new ApiClient(server.server.url, 'key-of-ann');
  expect((await ann.send('PUT', `/v1/agents/${name}?check=true`, spec)).status).toBe(403);
  const wrong = { ...spec, mcp_servers: [registered('test'), registered('missing')] };
  expect((await root.send('PUT', `/v1/agents/${name}?check=true`, wrong)).status).toBe(422);
  expect(server.model.requestsTo(name)).toEqual([]);
  expect(server.mcp.received.length).toBe(received);
});

describe('`everturn agents check`', () => {
  test('tries an agent by its name, and ends with 1 if something cannot be used', async () => {
    const { name, spec, checks } = mixed();
    await root.putAgent(name, spec);
    const { code, stdout, stderr } = await everturn(['agents', 'check', name, '--json'], env);
    expect(JSON.parse(stdout)).toEqual([{ agent: name, checks }]);
    expect([code, stderr]).toEqual([1, `everturn: checks have failed for these agents: ${name}\n`]);
  });

  test('tries an agent in a file, and ends with 0 if all works or waits for a sign-in', async () => {
    const file = path.join(folder, 'orders.json');
    const spec = { model: { name: newId('req') }, mcp_servers: [registered('test'), registered('notes')] };
    await writeFile(file, JSON.stringify(spec));
    const { code, stdout, stderr } = await everturn(['agents', 'check', file], env);
    const [head, model, test_, notes_] = stdout.split('\n');
    expect(head).toBe('orders');
    expect(model).toMatch(/^ {2}ok +\d+\.\d s {2}model req_\w+ at 127\.0\.0\.1:\d+$/);
    expect(test_).toMatch(/^ {2}ok .* MCP server test at 127\.0\.0\.1:\d+$/);
    expect(notes_).toMatch(/^ {2}needs a sign-in .* MCP server notes at .*: requires the user to sign in$/);
    expect([code, stderr]).toEqual([0, '']);
  });

  test('tries all registered agents without an argument', async () => {
    const names = [newId('req'), newId('req')];
    for (const name of names) await root.putAgent(name, { model: { name } });
    const { stdout } = await everturn(['agents', 'check', '--json'], env);
    const checked = JSON.parse(stdout) as { agent: string }[];
    expect(checked.map(({ agent }) => agent)).toEqual(expect.arrayContaining(names));
  });

  test('says what is wrong with a file, or that there is no such agent', async () => {
    const file = path.join(folder, 'typo.json');
    await writeFile(file, JSON.stringify({ model: { name: 'm' }, instruction: 'Be brief.' }));
    const typo = await everturn(['agents', 'check', file], env);
    expect([typo.code, typo.stderr]).toEqual([1, expect.stringContaining('instruction')]);
    const missing = await everturn(['agents', 'check', 'no-such-agent'], env);
    expect([missing.code, missing.stderr]).toEqual([
      1,
      expect.stringContaining('no agent is registered under the name "no-such-agent"'),
    ]);
  });
});

test('a turn that ends in error is one warning, after one for each attempt at its model', async () => {
  const agent = newId('req');
  await root.putAgent(agent, { model: { name: 'down/m' } });
  const sessionId = await root.createSession(agent);
  const reader = root.turn(sessionId, 'go');
  expect(await reader.end()).toMatchObject({ status: 'error' });
  const turnId = await reader.turnId();
  const ofTurn = () => lines.filter((line) => line['turnId'] === turnId);
  await expect.poll(() => ofTurn().map(({ msg }) => msg)).toContain('a turn ended in error');
  const attempts = ofTurn().slice(0, -1);
  for (const line of attempts) {
    expect(line).toMatchObject({ provider: 'down', model: 'm', address: refused, code: 'ECONNREFUSED' });
  }
  expect(attempts.map(({ msg }) => msg)).toEqual([
    ...Array.from({ length: attempts.length - 1 }, () => 'a model call failed; it is repeated'),
    'a model call failed',
  ]);
  expect(ofTurn().at(-1)).toMatchObject({
    sessionId,
    agent,
    code: 'model_failed',
    message: expect.stringMatching(/^down\/m: the model cannot be reached .*has never answered/),
  });
});
