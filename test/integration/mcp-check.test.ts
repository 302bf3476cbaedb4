import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { CheckedServer } from '../../src/tools/check-servers.ts';
import { ApiClient } from '../support/api-client.ts';
import { everturn } from '../support/command-line.ts';
import { stdioEndpoint } from '../support/mcp-kinds.ts';
import { oddEndpoint } from '../support/odd-mcp-server.ts';
import { startTestServer } from '../support/test-server.ts';

const { command, args } = stdioEndpoint('2025-11-25');
const broken = { command: '/bin/sh', args: ['-c', 'echo "\u001b[31mAPI_KEY is required" >&2; exit 1'] };
const { env: oddEnv, ...oddProgram } = oddEndpoint({
  tools: [
    { name: 'act', inputSchema: { type: 'string' } },
    { name: 'later\u001b[31m', execution: { taskSupport: 'required' } },
  ],
  resources: {},
});
const odd = { command: oddProgram.command, args: oddProgram.args, env: oddEnv };
const REPAIRED = 'the schema of the tool "act" was repaired';
const LEFT_OUT = 'was left out: it runs only as a task';
const off = { command: 'x', disabled: true };

describe('`everturn mcp check`', () => {
  let folder: string;
  let env: Record<string, string>;
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'everturn-check-'));
    const file = path.join(folder, 'mcp.json');
    await writeFile(
      file,
      JSON.stringify({ mcpServers: { works: { type: 'stdio', command, args }, odd, broken, off } }),
    );
    env = { EVERTURN_DATA: path.join(folder, 'data'), EVERTURN_MCP_SERVERS: file };
  });
  afterAll(() => rm(folder, { recursive: true }));

  test('prints what one server offers, and leaves nothing running', async () => {
    const { code, stdout, stderr } = await everturn(['mcp', 'check', 'works'], env);
    expect(stdout).toMatch(
      /^works: stdio, protocol 2025-11-25, connected in \d+\.\d s, 8 tools: \d+ ask, \d+ run\n( {2}(ask|run) +@[\w-]+ +\w+\n){8}$/,
    );
    expect(stderr).toMatch(/mcpServers\.off is disabled: no agent can use it\n$/);
    expect(code).toBe(0);
    expect(await readdir(path.join(folder, 'data', 'programs'))).toEqual([]);
  });

  test('prints which tools were left out or repaired', async () => {
    const { code, stdout } = await everturn(['mcp', 'check', 'odd'], env);
    expect(stdout).toMatch(/^odd: stdio, .*, 2 tools: 1 ask, 1 run\n {2}ask .* act\n {2}run .* read_resource\n/);
    expect(stdout.split('\n').slice(3)).toEqual([
      expect.stringMatching(`^  warning: ${REPAIRED}`),
      expect.stringMatching(`^  warning: the tool "later\\\\u001b.31m" ${LEFT_OUT}`),
      '',
    ]);
    expect(code).toBe(0);
  });

  test('prints why a server cannot be used, and ends with 1', async () => {
    const { code, stdout, stderr } = await everturn(['mcp', 'check'], env);
    expect(stdout).toContain('works: stdio');
    expect(stdout).toMatch(
      /^broken: not available \(\d+\.\d s\): ended with exit code 1; stderr: �\[31mAPI_KEY is required$/m,
    );
    expect(stderr).toMatch(/everturn: these MCP servers cannot be used: broken\n$/);
    expect(code).toBe(1);
  });

  test.each([
    [{}, 'other', 'EVERTURN_MCP_SERVERS has no server "other": it has works, odd, broken\n'],
    [{}, 'off', 'EVERTURN_MCP_SERVERS: off is disabled\n'],
    [
      { EVERTURN_MCP_SERVERS: '' },
      'works',
      'EVERTURN_MCP_SERVERS is not set: set it to the file that has the MCP servers\n',
    ],
  ])('of a server that is not there ends with 1 (%j, %s)', async (more, name, message) => {
    const { code, stdout, stderr } = await everturn(['mcp', 'check', name], { ...env, ...more });
    expect([code, stdout, stderr]).toEqual([1, '', `everturn: ${message}`]);
  });
});

test('GET /v1/agents/mcp/servers lists the same, for admins only', async () => {
  const server = await startTestServer({
    servers: { works: { command, args }, odd, broken },
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann:user=key-of-ann' },
  });
  try {
    const as = (key: string) => new ApiClient(server.server.url, key);
    const { data } = await as('key-of-root').get<{ data: CheckedServer[] }>('/v1/agents/mcp/servers');
    expect(data).toEqual([
      expect.objectContaining({ name: 'works', error: null, transport: 'stdio', protocol: '2025-11-25' }),
      expect.objectContaining({
        name: 'odd',
        error: null,
        warnings: [expect.stringContaining(REPAIRED), expect.stringContaining(LEFT_OUT)],
      }),
      expect.objectContaining({ name: 'broken', error: expect.stringContaining('API_KEY is required'), tools: [] }),
      expect.objectContaining({ name: 'test', error: null, transport: 'streamable-http' }),
    ]);
    const { status, body } = await as('key-of-ann').send('GET', '/v1/agents/mcp/servers');
    expect([status, body.error.message]).toEqual([403, expect.stringContaining('you cannot check the MCP servers')]);
  } finally {
    await server.stop();
  }
});
