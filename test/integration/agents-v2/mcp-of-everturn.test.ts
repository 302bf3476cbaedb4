import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../../support/api-client.ts';
import { keptPort } from '../../support/kept-port.ts';
import { held, say, ScriptedModel, textOf, use } from '../../support/scripted-model.ts';
import { ServerProcess } from '../../support/server-process.ts';

/** Agents that run other agents by `/mcp` of their own server, as a process that is killed. */

let dataDir: string;
let model: ScriptedModel;
let server: ServerProcess;
let api: ApiClient;

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-own-mcp-'));
  model = await ScriptedModel.start();
  const port = await keptPort();
  const mcpFile = path.join(dataDir, 'mcp.json');
  const url = `http://127.0.0.1:${port}/mcp`;
  const own = { url, headers: { authorization: 'Bearer key-of-agents' }, idempotent_tools: ['run_agent'] };
  await writeFile(mcpFile, JSON.stringify({ servers: { own } }));
  server = await ServerProcess.prepare(dataDir, {
    EVERTURN_PORT: String(port),
    EVERTURN_MCP_SERVERS: mcpFile,
    EVERTURN_API_KEYS: 'ann:admin=key-of-ann,agents:user=key-of-agents',
    EVERTURN_TOOL_HEARTBEAT_SECONDS: '3',
    EVERTURN_SHUTDOWN_SECONDS: '1',
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
  });
  await server.start();
  api = new ApiClient(server.api.url, 'key-of-ann');
});

afterAll(async () => {
  await server.stop();
  await model.stop();
  await rm(dataDir, { recursive: true, force: true });
});

test('an agent runs another agent once, although a crash repeats its call', async () => {
  const first = held(
    () => undefined,
    (call) => call.finish(),
  );
  model.script('clerk', first.script, say('17 and 23.'));
  await api.putAgent('clerk', { model: { name: 'clerk' } });
  const task = { agent: 'clerk', message: 'Which orders are late?' };
  model.script('boss', use({ name: 'run_agent', id: 'r1', args: task }), say('17 and 23 are late.'));
  await api.putAgent('boss', {
    model: { name: 'boss' },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'own', require_approval_for_tools: [] }],
  });
  const sessionId = await api.createSession('boss');
  const reader = api.turn(sessionId, 'Go');
  const turnId = await reader.turnId();
  await first.reached;
  await server.kill();
  await server.start();
  const rest = api.subscribe(sessionId, turnId);
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: '17 and 23 are late.' } });

  const [, told] = model.requestsTo('boss');
  const result = JSON.parse(textOf(told?.messages.at(-1))) as object;
  expect(result).toMatchObject({ status: 'completed', answer: '17 and 23.' });
  // The session belongs to the subject of the key with which agents call.
  const sessions = await new ApiClient(api.url, 'key-of-agents').list<{ id: string }>(
    '/v1/agents/sessions?agent_name=clerk',
  );
  expect(sessions).toHaveLength(1);
});
