import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createLogger } from '../../../src/telemetry/logger.ts';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { responsesIn } from '../../support/code-turns.ts';
import { sendError, startEmbeddingServer, type EmbeddingServer } from '../../support/embedding-server.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { say, use } from '../../support/scripted-model.ts';
import type { TestServer } from '../../support/test-server.ts';

/** Searches of agents whose tools are ranked by words, and by their meaning too. */

const lines: Record<string, unknown>[] = [];
let folder: string;
let embeddings: EmbeddingServer;
let answer: EmbeddingServer['answer'];
let shop: TestMcpServer;
let mail: TestMcpServer;
let server: TestServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-search-'));
  embeddings = await startEmbeddingServer(vectorOf);
  ({ answer } = embeddings);
  const providers = path.join(folder, 'providers.json');
  const vectors = { kind: 'openai-compatible', base_url: embeddings.url };
  await writeFile(providers, JSON.stringify({ providers: { vectors } }));
  const annotations = { readOnlyHint: true };
  shop = await TestMcpServer.start({
    tools: [
      { name: 'find', description: 'Finds what is in stock.', annotations },
      { name: 'create-order', description: 'Creates an order.', annotations },
    ],
  });
  mail = await TestMcpServer.start({ tools: [{ name: 'send', description: 'Sends a letter.', annotations }] });
  server = await startCodeServer(
    { EVERTURN_MODEL_PROVIDERS: providers, EVERTURN_EMBEDDING_MODEL: 'vectors/small' },
    {
      log: createLogger({ logLevel: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line) as never) }),
    },
  );
});
beforeEach(() => {
  embeddings.answer = answer;
  lines.length = 0;
});
afterAll(async () => {
  await server.stop();
  await embeddings.stop();
  await shop.stop();
  await mail.stop();
  await rm(folder, { recursive: true });
});

/** The texts of one line mean the same. */
const MEANINGS = [
  ['inventory', 'find: Finds what is in stock.'],
  ['purchase', 'create-order: Creates an order.'],
  ['postal mail', 'send: Sends a letter.'],
];

function vectorOf(text: string): number[] {
  return [...MEANINGS.map((texts) => (texts.includes(text) ? 1 : 0)), MEANINGS.flat().includes(text) ? 0 : 1];
}

/** An agent whose code has the tools of one server, and whose model those of another that are not listed. */
function agent(toolSearch: 'keyword' | 'hybrid'): Partial<AgentSpec> {
  return {
    code_actions: { approvals: 'allow', tool_search: toolSearch },
    mcp_servers: [
      { type: 'inline', name: 'Shop', url: shop.url, allowed_callers: ['code'] },
      { type: 'inline', name: 'letters', url: mail.url, preload: false },
    ],
  };
}

interface Found {
  tools: { name?: string; import?: string }[];
  note: string;
}

/** The results of one turn of a new session, whose model searches for each text, and the tools that it is then offered. */
async function search(
  spec: Partial<AgentSpec>,
  ...queries: string[]
): Promise<{ found: Found[]; outcomes: string[]; offered: string[] }> {
  const chat = await server.chat({ spec });
  const searches = queries.map((query, i) => use({ name: 'search_tools', args: { query }, id: `c${i}` }));
  chat.script(...searches, say('done'));
  const responses = responsesIn(await chat.turn('go').done);
  const offered =
    chat
      .requests()
      .at(-1)
      ?.tools?.map((tool) => tool.function.name) ?? [];
  return {
    found: responses.map(({ content }) => JSON.parse(content ?? '') as Found),
    outcomes: responses.map(({ outcome }) => outcome),
    offered,
  };
}

const FIND = 'from mcptools.shop.find import run, Params';
const CREATE_ORDER = 'from mcptools.shop.create_order import run, Params';

test('a tool that no word of the query matches is found by its meaning, and not by a search by words', async () => {
  const { found, offered } = await search(agent('hybrid'), 'inventory', 'postal mail');
  expect(found).toMatchObject([{ tools: [{ import: FIND }] }, { tools: [{ name: 'letters__send' }] }]);
  expect(offered).toContain('letters__send');
  expect(embeddings.requests[0]).toMatchObject({ model: 'small', input: { length: 4 } });
  // The embeddings of the tools are kept.
  expect(embeddings.requests[1]?.input).toEqual(['postal mail']);
  const asked = embeddings.requests.length;
  const byWords = await search(agent('keyword'), 'inventory', 'postal mail');
  const none = { tools: [], note: 'None of 3 tools matches these words.' };
  expect(byWords.found).toEqual([none, none]);
  expect(byWords.offered).not.toContain('letters__send');
  expect(embeddings.requests).toHaveLength(asked);
  expect(lines).toEqual([]);
});

test('matches by words stay, beside matches by meaning', async () => {
  const { found } = await search(agent('hybrid'), 'order', 'purchase');
  expect(found[0]?.tools).toMatchObject([{ import: CREATE_ORDER }]);
  expect(found[1]?.tools).toMatchObject([{ import: CREATE_ORDER }]);
});

test('while the model for embeddings fails, tools are found by words, and the log says so once', async () => {
  embeddings.answer = (_, response) => sendError(response, 503, 'the engine is busy');
  const { found, outcomes } = await search(agent('hybrid'), 'stock now', 'overview of the inventory');
  expect(outcomes).toEqual(['succeeded', 'succeeded']);
  expect(found).toMatchObject([{ tools: [{ import: FIND }] }, { tools: [] }]);
  expect(lines).toMatchObject([
    {
      level: 40,
      model: 'vectors/small',
      reason: 'the engine is busy',
      msg: 'tools are searched by words alone, and not by meaning',
    },
  ]);
});

test('the check of an agent tries the model for embeddings if its tools are searched by meaning', async () => {
  const checks = async (spec: Partial<AgentSpec>): Promise<object[]> => {
    const { body } = await server.api.send('PUT', '/v1/agents/checked?check=true', { ...spec, model: { name: 'any' } });
    return (body as { data: { checks: { type: string }[] } }).data.checks.filter(({ type }) => type === 'model');
  };
  const model = { name: 'any', status: 'ok' };
  const address = new URL(embeddings.url).host;
  const small = { type: 'model', name: 'vectors/small', address };
  expect(await checks(agent('hybrid'))).toMatchObject([model, { ...small, status: 'ok', reason: null }]);
  expect(await checks(agent('keyword'))).toMatchObject([model]);
  embeddings.answer = (_, response) => sendError(response, 404, 'no such model');
  const failed = { status: 'failed', reason: 'answered 404: no such model' };
  expect(await checks(agent('hybrid'))).toMatchObject([model, { ...small, ...failed }]);
});

// The last one: the server is not started again.
test('without the server of the embeddings tools are found by words', async () => {
  await embeddings.stop();
  const { found, outcomes } = await search(agent('hybrid'), 'stock of the shop', 'inventory list');
  expect(outcomes).toEqual(['succeeded', 'succeeded']);
  expect(found).toMatchObject([{ tools: [{ import: FIND }, { import: CREATE_ORDER }] }, { tools: [] }]);
  expect(lines).toMatchObject([{ level: 40, reason: expect.stringContaining('cannot be reached') }]);
});
