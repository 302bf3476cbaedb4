import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { everturn } from '../support/command-line.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer } from '../support/test-server.ts';

/** A server from npm that was never installed on this machine, registered by the block of its README. */
const FILE = { mcpServers: { memory: { command: 'npx', args: ['-y', '@modelcontextprotocol/server-memory'] } } };

/** An installation from the registry of npm may take minutes. */
const INSTALL_MS = 240_000;

let folder: string;
let env: Record<string, string>;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-cold-'));
  const at = (name: string): string => path.join(folder, name);
  await writeFile(at('mcp.json'), JSON.stringify(FILE));
  env = { EVERTURN_MCP_SERVERS: at('mcp.json'), npm_config_cache: at('npm') };
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true });
});

test(
  'the check waits until it is installed, and lists its tools',
  async () => {
    const { code, stdout } = await everturn(['mcp', 'check'], { ...env, EVERTURN_DATA: path.join(folder, 'data') });
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^memory: stdio, .* \d+ tools: \d+ ask, \d+ run\n/)]);
  },
  INSTALL_MS,
);

test(
  'turns continue while it is being installed, and call its tools afterwards',
  async () => {
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
    const server = await startTestServer({ env });
    try {
      const chat = await server.chat({
        spec: { mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'memory' }] },
      });
      const initialized = async () => {
        chat.script(say('Hello.'));
        const reader = chat.turn('Hi');
        expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Hello.' } });
        const { unavailable, mcp_servers: connected } = await reader.type('mcp.initialize');
        return [unavailable, connected.map(({ name }) => name)];
      };
      // The first turn may have waited until it was installed.
      const starting = [[{ name: 'memory', reason: 'it is still starting' }], []];
      expect([starting, [[], ['memory']]]).toContainEqual(await initialized());
      await expect.poll(initialized, { timeout: INSTALL_MS, interval: 1_000 }).toEqual([[], ['memory']]);
      chat.script(use({ name: 'read_graph' }), say('It is empty.'));
      const reader = chat.turn('What do you know?');
      expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'It is empty.' } });
      expect(await reader.type('tool.response')).toMatchObject({ outcome: 'succeeded' });
    } finally {
      await server.stop();
    }
  },
  INSTALL_MS + 60_000,
);
