import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { CheckedServer } from '../../src/tools/check-servers.ts';
import { ROOT } from '../support/guides/blocks.ts';
import { pythonWith } from '../support/python.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** Servers from npm and PyPI, unmodified, which are registered by the blocks of their READMEs. */

const run = promisify(execFile);

/** A server as many write them: with FastMCP, and without annotations. */
const FAST = `
from fastmcp import FastMCP
mcp = FastMCP("fast")
@mcp.tool
def add(a: int, b: int) -> int:
    return a + b
mcp.run(show_banner=False)
`;

let folder: string;
let server: TestServer;
beforeAll(async () => {
  folder = await realpath(await mkdtemp(path.join(tmpdir(), 'everturn-others-')));
  const at = (name: string): string => path.join(folder, name);
  await mkdir(at('files'));
  await writeFile(at('files/note.txt'), 'Buy milk.');
  await writeFile(at('fast.py'), FAST);
  await run('git', ['init', '--quiet', at('repository')]);
  const python = await pythonWith('mcp-server-time==2026.10.19', 'mcp-server-git==2026.10.19', 'fastmcp==4.1.6');
  // In the checkout, npx finds the installed package, and asks no registry.
  const npx = (name: string, ...args: string[]) => ({
    command: 'npx',
    args: ['-y', `@modelcontextprotocol/server-${name}`, ...args],
    cwd: ROOT,
  });
  const mcpServers = {
    everything: npx('everything'),
    filesystem: npx('filesystem', at('files')),
    memory: { ...npx('memory'), env: { MEMORY_FILE_PATH: at('memory.jsonl') } },
    'sequential-thinking': npx('sequential-thinking'),
    time: { command: python, args: ['-m', 'mcp_server_time', '--local-timezone', 'Europe/Berlin'] },
    git: { command: python, args: ['-m', 'mcp_server_git', '--repository', at('repository')] },
    fast: { command: python, args: [at('fast.py')] },
  };
  await writeFile(at('mcp.json'), JSON.stringify({ mcpServers }));
  server = await startTestServer({ env: { EVERTURN_MCP_SERVERS: at('mcp.json') } });
}, 240_000);
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

test('their tools are listed, and which of them ask by default', async () => {
  const { data } = await server.api.get<{ data: CheckedServer[] }>('/v1/agents/mcp/servers');
  const asking = data.map(({ name, error, protocol, tools }) => [
    name,
    error ?? protocol,
    tools.flatMap((tool) => (tool.use === 'ask' ? [tool.name] : [])).join(' '),
  ]);
  expect(asking).toEqual([
    ['everything', '2025-11-25', expect.stringMatching(/^gzip-file-as-resource .* trigger-url-elicitation/)],
    ['filesystem', '2025-11-25', 'write_file edit_file create_directory move_file'],
    [
      'memory',
      '2025-11-25',
      'create_entities create_relations add_observations delete_entities delete_observations delete_relations',
    ],
    ['sequential-thinking', '2025-11-25', ''],
    ['time', '2026-07-28', ''],
    ['git', '2026-07-28', 'git_commit git_add git_reset git_create_branch git_checkout'],
    ['fast', '2026-07-28', 'add'],
    ['demo', '2026-07-28', 'add_note forget_notes'],
  ]);
});

test.each<[string, string, () => object, RegExp]>([
  ['everything', 'echo', () => ({ message: 'hi' }), /^Echo: hi$/],
  ['filesystem', 'read_text_file', () => ({ path: path.join(folder, 'files/note.txt') }), /^Buy milk\./],
  ['filesystem', 'list_directory', () => ({ path: path.join(folder, 'files') }), /note\.txt/],
  ['memory', 'create_entities', () => ({ entities: [ANN] }), /Ann/],
  ['memory', 'read_graph', () => ({}), /likes tea/],
  [
    'sequential-thinking',
    'sequentialthinking',
    () => ({ thought: 'a', thoughtNumber: 1, totalThoughts: 1, nextThoughtNeeded: false }),
    /"thoughtNumber": 1/,
  ],
  ['time', 'get_current_time', () => ({ timezone: 'Asia/Tokyo' }), /\+09:00/],
  ['git', 'git_status', () => ({ repo_path: path.join(folder, 'repository') }), /No commits yet/],
  ['fast', 'add', () => ({ a: 2, b: 3 }), /^5/],
])('the tools of %s run: %s', async (name, tool, args, expected) => {
  const chat = await server.chat({
    scripts: [use({ name: tool, args: args() }), say('Done.')],
    spec: { mcp_servers: [{ type: 'truefoundry-mcp-registry', name, require_approval_for_tools: [] }] },
  });
  const reader = chat.turn('go');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  const { outcome, content } = await reader.type('tool.response');
  expect([outcome, content]).toEqual(['succeeded', expect.stringMatching(expected)]);
});

test('what the results of everything link to is read, and its instructions reach the model', async () => {
  const read = (uri: string) => use({ name: 'read_resource', args: { uri: `demo://resource/${uri}` } });
  const chat = await server.chat({
    scripts: [
      use({ name: 'get-resource-links', args: { count: 2 } }),
      read('dynamic/blob/1'),
      read('dynamic/text/2'),
      use({ name: 'gzip-file-as-resource', args: { name: 'a.gz', data: 'data:text/plain,hello' } }),
      read('session/a.gz'),
      read('dynamic/none/3'),
      say('Done.'),
    ],
    spec: {
      mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'everything', require_approval_for_tools: [] }],
    },
  });
  const reader = chat.turn('go');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  const frames = await reader.done;
  expect(frames.flatMap((one) => (one.type === 'tool.response' ? [[one.outcome, one.content]] : []))).toEqual([
    ['succeeded', expect.stringMatching(/\[.*: demo:\/\/resource\/dynamic\/blob\/1\]\n\[.*: demo:.*\/text\/2\]$/)],
    ['succeeded', expect.stringMatching(/^Resource 1: This is a base64 blob/)],
    ['succeeded', expect.stringMatching(/^Resource 2: This is a plaintext resource/)],
    ['succeeded', '[a.gz: demo://resource/session/a.gz]'],
    ['succeeded', expect.stringMatching(/^\[a\.gz, application\/gzip, \d+ B\]/)],
    ['failed', expect.stringContaining('not found')],
  ]);
  const system = chat.requests()[0]?.messages.find(({ role }) => role === 'system')?.content;
  expect(system).toMatch(/The MCP server "everything" says this about the use of its tools.*\n> # Everything Server/);
});

test('a tool without annotations asks by default', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'add', args: { a: 2, b: 3 } })],
    spec: { mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'fast' }] },
  });
  const required = [expect.objectContaining({ type: 'tool.approval_required' })];
  expect(await chat.turn('go').end()).toMatchObject({ status: 'done', output: null, required_actions: required });
});

const ANN = { name: 'Ann', entityType: 'person', observations: ['likes tea'] };
