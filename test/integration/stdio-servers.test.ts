import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { EventReader } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/is-alive.ts';
import { stdioEndpoint } from '../support/mcp-kinds.ts';
import { say, ScriptedModel, use } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

const { command, args } = stdioEndpoint('2025-11-25');
const { args: stubborn } = stdioEndpoint('2025-11-25', 'stubborn');
/** A program that records in its own working folder that it was started. */
const early = (folder: string) => ({ command: '/bin/sh', args: ['-c', 'echo $$ > started; sleep 1000'], cwd: folder });
const SERVERS = { local: { command, args }, stubborn: { command, args: stubborn } };

const onLocal = {
  mcp_servers: [{ type: 'truefoundry-mcp-registry' as const, name: 'local', require_approval_for_tools: [] }],
};

/** The process that executed a call of the tool `inspect`. */
async function pidOf(reader: EventReader): Promise<number> {
  const { content } = await reader.type('tool.response');
  return (JSON.parse(content) as { pid: number }).pid;
}

describe('a registered program', () => {
  let server: TestServer;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'everturn-early-'));
    server = await startTestServer({ servers: { ...SERVERS, early: early(folder) } });
  });
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true });
  });

  test('is started with the server, before an agent needs it', async () => {
    await eventually(async () => expect(await readdir(folder)).toEqual(['started']));
  });

  test('is a server as any other: its tools run, and its calls have operation ids', async () => {
    const chat = await server.chat({ scripts: [use({ name: 'inspect', id: 'i1' }), say('I see.')], spec: onLocal });
    const reader = chat.turn('look');
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I see.' } });
    expect(await reader.type('mcp.initialize')).toMatchObject({
      // The contract, whose clients are strict, has no word for it.
      mcp_servers: [{ id: 'local', name: 'local', session_id: null, transport_type: 'streamable-http' }],
    });
    const { content, outcome } = await reader.type('tool.response');
    expect(outcome).toBe('succeeded');
    expect(JSON.parse(content)).toMatchObject({
      meta: { 'io.everturn/operation-id': expect.stringContaining(`${await reader.turnId()}/i1`) },
      cancelled: 0,
    });
    expect(content).not.toContain('OPENAI_API_KEY');
  });

  test('that dies during a call leaves an unknown outcome, and is restarted for the next step', async () => {
    const chat = await server.chat({
      scripts: [use({ name: 'die', id: 'd1' }), use({ name: 'inspect', id: 'i1' }), say('It may have happened.')],
      spec: onLocal,
    });
    const reader = chat.turn('go');
    expect(await reader.end()).toMatchObject({ status: 'done' });
    const responses = (await reader.done).filter((frame) => frame.type === 'tool.response');
    expect(responses.map(({ tool_call_id: id, outcome }) => [id, outcome])).toEqual([
      ['d1', 'unknown_outcome'],
      ['i1', 'succeeded'],
    ]);
    expect(responses[0]?.content).toContain('ended with exit code 3');
  });

  test('cannot be added by an agent', async () => {
    const model = { name: 'm' };
    for (const more of [{ command, args }, { url: 'stdio:server', command }, { url: 'file:///bin/sh' }]) {
      const mcpServers = [{ type: 'inline', name: 'evil', ...more }];
      const { status } = await server.api.send('PUT', '/v1/agents/evil', { model, mcp_servers: mcpServers });
      expect(status).toBe(400);
    }
  });
});

describe('processes that remain of the programs', () => {
  let dataDir: string;
  let model: ScriptedModel;
  let server: ServerProcess;

  beforeEach(async () => {
    dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-stdio-'));
    model = await ScriptedModel.start();
    const mcpFile = path.join(dataDir, 'mcp.json');
    await writeFile(mcpFile, JSON.stringify({ servers: SERVERS }));
    server = await ServerProcess.prepare(dataDir, {
      EVERTURN_MCP_SERVERS: mcpFile,
      EVERTURN_SHUTDOWN_SECONDS: '1',
      OPENAI_API_KEY: 'x',
      OPENAI_BASE_URL: model.url,
    });
    await server.start();
  });
  afterEach(async () => {
    await server.stop();
    await model.stop();
    await rm(dataDir, { recursive: true, force: true });
  });

  async function pidOfServer(name: string): Promise<number> {
    const spec = { model: { name }, mcp_servers: [{ type: 'truefoundry-mcp-registry', name }] };
    await server.api.putAgent(name, spec);
    model.script(name, use({ name: 'inspect' }), say('I see.'));
    const reader = server.api.turn(await server.api.createSession(name), 'look');
    await reader.end();
    return pidOf(reader);
  }

  test('after SIGTERM: none, not even one that ignores SIGTERM', async () => {
    const pids = [await pidOfServer('local'), await pidOfServer('stubborn')];
    expect(pids.map(isAlive)).toEqual([true, true]);
    expect(await server.stop()).toBe(0);
    expect(pids.map(isAlive)).toEqual([false, false]);
  });

  test('after kill -9: one that ignores the end of its input, until the next start, which ends it', async () => {
    const pid = await pidOfServer('stubborn');
    await server.kill();
    await server.start();
    await expect.poll(() => isAlive(pid)).toBe(false);
    const folder = path.join(dataDir, 'programs');
    // The next start writes down programs of its own, whose records come and go.
    const records = async (): Promise<string[]> =>
      Promise.all((await readdir(folder)).map((name) => readFile(path.join(folder, name), 'utf8').catch(() => '')));
    expect((await records()).filter((text) => text.includes(`"leader":{"pid":${pid},`))).toEqual([]);
  });

  test('after kill -9: none, because a program ends with its input', async () => {
    const pid = await pidOfServer('local');
    expect(isAlive(pid)).toBe(true);
    await server.kill();
    await expect.poll(() => isAlive(pid)).toBe(false);
    await server.start();
    expect(isAlive(await pidOfServer('local'))).toBe(true);
  });
});
