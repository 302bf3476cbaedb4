import path from 'node:path';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };
import { listOwnProcesses } from '../support/own-processes.ts';
import { folded } from '../support/api-client.ts';
import { everturn as runEverturn } from '../support/command-line.ts';
import { ServerProcess } from '../support/server-process.ts';

const run = promisify(execFile);

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-start-'));
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

const everturn = (args: string[], env: Record<string, string> = {}) =>
  runEverturn(args, { EVERTURN_DATA: dataDir, ...env });

test('an invalid setting stops the start with its name and the expected value', async () => {
  const { code, stderr } = await everturn(['start'], { EVERTURN_PORT: 'eighty' });
  expect([code, stderr]).toEqual([1, 'everturn: EVERTURN_PORT must be a port number, 0 to 65535 (got "eighty")\n']);
  const file = path.join(dataDir, 'none.json');
  const mcp = await everturn(['start'], { EVERTURN_PORT: '0', EVERTURN_MCP_SERVERS: file });
  expect([mcp.code, mcp.stderr]).toEqual([1, expect.stringContaining(`EVERTURN_MCP_SERVERS: ${file}`)]);
});

test('the version is that of the package', async () => {
  expect(await everturn(['--version'])).toEqual({ code: 0, stdout: `everturn ${packageJson.version}\n`, stderr: '' });
});

test.each([[[]], [['begin']], [['start', 'now']]])('%j prints the usage', async (args) => {
  expect(await everturn(args)).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/Usage: everturn (start|[^]* start )/),
  });
});

test('the quick start: start, the printed commands, an approval, a stop that leaves no process behind', async () => {
  const server = await ServerProcess.prepare(dataDir, {});
  await server.start();
  const lines = server.output.trim().split('\n');
  expect(lines[0]).toBe(`Everturn listens on ${server.api.url}`);
  expect(server.output).toContain('the demo model, a script');

  // The two commands under "try" work as they are printed.
  const commands = lines.filter((line) => line.includes('curl')).map((line) => line.replace(/^\s*(try)?\s*/, ''));
  const { stdout } = await run('bash', ['-c', commands.join('\n')]);
  expect(stdout).toMatch(/data: \{"type":"turn.created"[^]*"search_notes"[^]*"type":"turn.done"/);

  const sessionId = await server.api.createSession('demo');
  const paused = server.api.turn(sessionId, 'note: buy milk');
  const end = await paused.end();
  if (end.status !== 'done') throw new Error(end.status);
  const [action] = end.required_actions;
  const approval = {
    type: 'user.tool_approval',
    thread_id: 'main',
    tool_call_id: action?.tool_calls[0]?.id,
    approval: { status: 'allow' },
  };
  const resumed = server.api.turn(sessionId, [approval]);
  expect(await resumed.end()).toMatchObject({ status: 'done', output: { content: expect.stringContaining('Noted') } });
  const slow = server.api.turn(sessionId, 'count to 1');
  expect(folded(await slow.done)).toContainEqual(expect.objectContaining({ content: 'Counted to 1.' }));
  const question = await server.api.turn(sessionId, 'ask me something').end();
  expect(question).toMatchObject({ required_actions: [{ type: 'tool.response_required' }] });

  // A second server on the same folder, and one on the same port, are rejected with the reason.
  const second = await everturn(['start'], { EVERTURN_PORT: '0' });
  expect([second.code, second.stderr]).toEqual([1, expect.stringContaining('another Everturn uses the data folder')]);
  expect(await server.stop()).toBe(0);
  const left = (await listOwnProcesses()).filter(({ commandLine }) => commandLine.includes(dataDir));
  expect(left).toEqual([]);
});

test.each([
  ['start', 'EVERTURN_PORT'],
  ['api', 'EVERTURN_METRICS_PORT'],
  ['worker', 'EVERTURN_WORKER_PORT'],
])(
  'everturn %s names a port in use before anything else starts: %s',
  async (role, setting) => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    // None of these answers.
    const others = { TEMPORAL_ADDRESS: '127.0.0.1:9', REDIS_URL: 'redis://127.0.0.1:9', OPENAI_API_KEY: 'x' };
    const parts = role === 'start' ? {} : { ...others, DATABASE_URL: `sqlite:${dataDir}/catalog.db` };
    const { code, stderr } = await everturn([role], { EVERTURN_PORT: '0', ...parts, [setting]: String(port) });
    taken.close();
    expect([code, stderr]).toEqual([
      1,
      `everturn: cannot listen on 127.0.0.1:${port}, the port is in use: choose another ${setting}\n`,
    ]);
    expect(await readdir(dataDir)).toEqual([]);
  },
  60_000,
);

test('with keys and without a model the start is rejected: the demo model is for a server without keys', async () => {
  const { code, stderr } = await everturn(['start'], { EVERTURN_API_KEYS: 'ann=key-of-ann', EVERTURN_PORT: '0' });
  expect([code, stderr]).toEqual([1, expect.stringContaining('set OPENAI_API_KEY, or OPENAI_BASE_URL')]);
});

test('an external Temporal that is unavailable is named, after a variable that is no setting', async () => {
  const env = { EVERTURN_PORT: '0', TEMPORAL_ADDRESS: '127.0.0.1:9', EVERTURN_TASK_QEUE: 'other' };
  const { code, stderr } = await everturn(['start'], env);
  expect([code, stderr]).toEqual([1, expect.stringContaining('TEMPORAL_ADDRESS 127.0.0.1:9')]);
  expect(stderr.match(/EVERTURN_TASK_QEUE is not a setting .* EVERTURN_TASK_QUEUE\?/g)).toHaveLength(1);
});
