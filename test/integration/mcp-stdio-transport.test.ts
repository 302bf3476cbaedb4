import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { SCOPE, toolScope } from '../support/tool-scope.ts';
import { isAlive } from '../support/is-alive.ts';
import { gatedEndpoint, stdioEndpoint } from '../support/mcp-kinds.ts';
import { withLogContext, logContext } from '../../src/telemetry/log-context.ts';
import { McpPool, type McpPoolOptions } from '../../src/mcp/pool.ts';
import { programEnv } from '../../src/mcp/program-env.ts';
import { ProgramRecords } from '../../src/mcp/program-records.ts';
import type { StdioEndpoint } from '../../src/mcp/registry.ts';
import { eventually } from '../support/eventually.ts';
import { StderrLog } from '../../src/mcp/stdio-transport.ts';

const unaborted = new AbortController().signal;
const calling = { operationId: 'turn_1/call_1', signal: unaborted, timeoutMs: 60_000 };

/** The servers are of 2025-11-25; except for the first test of the handshake the other version behaves the same. */
function start(endpoint: StdioEndpoint = stdioEndpoint('2025-11-25'), options: Partial<McpPoolOptions> = {}) {
  const logged: { level: number; msg: string; mcpServer?: string; pid?: number; turnId?: string }[] = [];
  const log = pino(
    { base: null, mixin: () => ({ ...logContext() }) },
    { write: (line) => void logged.push(JSON.parse(line)) },
  );
  const pool = new McpPool({ allowPrivateUrls: () => false, log, ...options });
  onTestFinished(() => pool.close());
  const call = (tool: string, args: Record<string, unknown> = {}) => pool.call(endpoint, SCOPE, tool, args, calling);
  const textOf = async (tool: string): Promise<string> => {
    const outcome = await call(tool);
    const [block] = outcome.status === 'result' ? outcome.content : [];
    if (block?.type !== 'text') throw new Error(JSON.stringify(outcome));
    return block.text;
  };
  const inspect = async () =>
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the test server
    JSON.parse(await textOf('inspect')) as { pid: number; env: Record<string, string> };
  return { pool, endpoint, logged, call, textOf, inspect };
}

/** A server that answers one request of any kind, and then closes its input. */
const ANSWERS_ONCE = `
  read probe; echo '{"jsonrpc":"2.0","id":"server-discover-probe-1","error":{"code":-32601,"message":"no"}}'
  read initialize; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}'
  read initialized; read list; echo '{"jsonrpc":"2.0","id":1,"result":{"tools":[],"content":[]}}'
  exec 0<&-; echo deaf >&2; sleep 1000`;

/** A shell that runs the server as its child, as `npx` does. */
function inShell(...args: string[]): StdioEndpoint {
  const { command, args: given, ...rest } = stdioEndpoint(...args);
  return { ...rest, command: '/bin/sh', args: ['-c', '"$@"; exit $?', 'sh', command, ...given] };
}

describe('the program of a server', () => {
  test('is started once, by its first user', async () => {
    const { pool, endpoint, inspect, logged } = start();
    expect(logged).toEqual([]);
    const both = await Promise.all([pool.tools(endpoint, SCOPE, unaborted), inspect(), inspect()]);
    expect(both[1].pid).toBe(both[2].pid);
    expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(1);
  });

  test('gets the few variables that every program needs, and those of its entry', async () => {
    vi.stubEnv('EVERTURN_TEST_SECRET', 'secret');
    onTestFinished(() => void vi.unstubAllEnvs());
    const { inspect } = start({ ...stdioEndpoint('2025-11-25'), env: { TOKEN: 'abc' } });
    const { env } = await inspect();
    expect(env['TOKEN']).toBe('abc');
    expect(env['PATH']).toBe(programEnv(process.env)['PATH']);
    expect(Object.keys(env).filter((name) => name.startsWith('EVERTURN'))).toEqual([]);
  });

  test('runs in an empty folder of its own, which is deleted with it', async () => {
    const print = 'pwd >&2; ls -A >&2; touch left; exec "$@"';
    const { command, args, ...rest } = stdioEndpoint('2025-11-25');
    const endpoint = { ...rest, command: '/bin/sh', args: ['-c', print, 'sh', command, ...args] };
    const folders = await Promise.all(
      [1, 2].map(async () => {
        const { inspect, logged, pool } = start(endpoint);
        await inspect();
        const folder = logged.find(({ msg }) => msg.startsWith(tmpdir()))?.msg ?? '';
        expect(await readdir(folder)).toEqual(['left']);
        expect(logged.filter(({ msg }) => !msg.startsWith('the MCP server'))).toHaveLength(1);
        await pool.close();
        return folder;
      }),
    );
    expect(new Set(folders).size).toBe(2);
    for (const folder of folders) expect(existsSync(folder)).toBe(false);
  });

  test('that cannot be started leaves no folder', async () => {
    const temporary = await mkdtemp(path.join(tmpdir(), 'everturn-tmp-'));
    onTestFinished(() => rm(temporary, { recursive: true }));
    vi.stubEnv('TMPDIR', temporary);
    onTestFinished(() => void vi.unstubAllEnvs());
    const { call } = start({ ...stdioEndpoint('2025-11-25'), command: '/nowhere/server' });
    expect(await call('echo')).toMatchObject({ status: 'not_sent' });
    expect(await readdir(temporary)).toEqual([]);
  });

  test('is written down for as long as it runs', async () => {
    const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-data-'));
    onTestFinished(() => rm(dataDir, { recursive: true }));
    const programs = await ProgramRecords.open(dataDir, pino({ enabled: false }));
    const { inspect, pool } = start(undefined, { programs });
    const { pid } = await inspect();
    const [name = ''] = await readdir(path.join(dataDir, 'programs'));
    expect(JSON.parse(await readFile(path.join(dataDir, 'programs', name), 'utf8'))).toMatchObject({
      leader: { pid },
      owner: { pid: process.pid },
      folder: expect.stringContaining('everturn-mcp-'),
    });
    await pool.close();
    expect(await readdir(path.join(dataDir, 'programs'))).toEqual([]);
  });

  test.each([
    [
      `echo starting >&2; echo "Error: API_KEY is required, not $TOKEN" >&2; echo '    at x.js:1' >&2; exit 1`,
      'ended with exit code 1; stderr: starting | Error: API_KEY is required, not [hidden]',
    ],
    [
      'for i in 1 2 3 4 5 6 7 8 9; do echo $i >&2; done; head -c 999 /dev/zero | tr "\\0" x >&2; echo end >&2; exit 1',
      `ended with exit code 1; stderr: …${'x'.repeat(597)}end`,
    ],
    ['echo Welcome; sleep 1000', 'failed: no MCP handshake within 0.5 s'],
  ])('that ends or is ended before it answers (%s) leaves its last words in the reason', async (script, reason) => {
    const env = { TOKEN: 'token-of-the-operator' };
    const endpoint = { ...stdioEndpoint('2025-11-25'), command: '/bin/sh', args: ['-c', script], env };
    const { pool } = start(endpoint, { handshakeTimeoutMs: 500 });
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow(`MCP server "test" ${reason}`);
  });

  test('that is ended before it writes to its standard output leaves its last words in the reason', async () => {
    const args = ['-c', 'echo "waits for the registry" >&2; sleep 1000'];
    const endpoint = { ...stdioEndpoint('2025-11-25'), command: '/bin/sh', args };
    const said = Promise.withResolvers<void>();
    const write = (line: string): void => (line.includes('waits for the registry') ? said.resolve() : undefined);
    const { pool } = start(endpoint, { startTimeoutMs: 1_000, log: pino({}, { write }) });
    // Its words are read before its time is over, however slow the machine is.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const failure = pool.tools(endpoint, SCOPE, unaborted).catch(String);
    await said.promise;
    vi.advanceTimersByTime(1_000);
    vi.useRealTimers();
    const advice = 'if it needs longer, for example to be installed, raise its start_timeout_seconds';
    expect(await failure).toContain(
      `MCP server "test" wrote nothing to its standard output within 1 s: ${advice}; stderr: waits for the registry`,
    );
  });

  test('runs in the configured folder', async () => {
    const { inspect } = start({
      ...stdioEndpoint('2025-11-25'),
      command: '/bin/sh',
      cwd: '/',
      args: ['-c', 'pwd >&2'],
    });
    await expect(inspect()).rejects.toThrow('ended with exit code 0');
    const { inspect: other, logged } = start({ ...inShell('2025-11-25'), cwd: '/', args: ['-c', 'pwd >&2'] });
    await expect(other()).rejects.toThrow('ended with exit code 0');
    expect(logged).toContainEqual(expect.objectContaining({ msg: '/', mcpServer: 'test' }));
  });

  test.each([
    [{ command: '/nowhere/server' }, /^MCP server "test" cannot be started: spawn \/nowhere\/server ENOENT$/],
    [{ cwd: '/nowhere' }, /^MCP server "test" cannot be started in \/nowhere: .*ENOENT$/],
    [{ command: '/bin/sh', args: ['-c', 'exit 7'] }, /^MCP server "test" ended with exit code 7$/],
    [{ command: '/bin/sh', args: ['-c', 'kill -9 $$'] }, /^MCP server "test" was ended by SIGKILL$/],
  ])('that cannot run (%j) leaves the call unsent, with the reason', async (more, message) => {
    const { pool, endpoint, call } = start({ ...stdioEndpoint('2025-11-25'), ...more });
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow(message);
    expect(await call('echo')).toEqual({ status: 'not_sent', message: expect.stringMatching(message) });
  });

  test('that does not respond is ended after its time-out', async () => {
    const { pool, endpoint, logged } = start(
      { ...stdioEndpoint('2025-11-25'), command: 'sleep', args: ['1000'] },
      { startTimeoutMs: 300, responseTimeoutMs: 100 },
    );
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow(
      'wrote nothing to its standard output within 0.3 s',
    );
    expect(logged[0]).toMatchObject({ msg: 'the MCP server was started', pid: expect.any(Number) });
    expect(isAlive(logged[0]?.pid ?? 0)).toBe(false);
  });

  test('that accepts no first message but `initialize` is restarted for it', async () => {
    const { textOf, logged } = start(stdioEndpoint('2025-11-25', 'strict'));
    expect(await textOf('inspect')).toContain('pid');
    expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(2);
  });

  test('that has no `initialize`, and reads it before it answers the probe, is started again for the newer protocol', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-late-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const { command, args: given, ...rest } = stdioEndpoint('2026-07-28');
    // Its first process answers so late that `initialize` has followed.
    const script = `
      if mkdir "$0" 2>/dev/null; then
        read probe; read initialize
        echo '{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}'; sleep 1000
      fi
      exec "$@"`;
    const args = ['-c', script, path.join(folder, 'started'), command, ...given];
    const { pool, endpoint, logged } = start({ ...rest, command: '/bin/sh', args }, { responseTimeoutMs: 1_000 });
    expect((await pool.tools(endpoint, SCOPE, unaborted)).protocol).toBe('2026-07-28');
    expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(2);
  });

  test('that rejects `initialize` is started once, and says why', async () => {
    const script = `
      read probe; echo '{"jsonrpc":"2.0","id":"server-discover-probe-1","error":{"code":-32601,"message":"no"}}'
      read initialize; echo '{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"NOTES_KEY is missing"}}'
      sleep 1000`;
    const { pool, endpoint, logged } = start({ ...stdioEndpoint(), command: '/bin/sh', args: ['-c', script] });
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('NOTES_KEY is missing');
    expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(1);
  });

  test('is ended after a period without use, and started again', async () => {
    const { inspect } = start(undefined, { idleMs: 200 });
    const { pid } = await inspect();
    await eventually(() => expect(isAlive(pid)).toBe(false));
    expect((await inspect()).pid).not.toBe(pid);
  });

  test('is ended with the pool, with all processes that it has started', async () => {
    const { pool, textOf, inspect } = start(inShell('2025-11-25'));
    const { pid } = await inspect();
    const child = Number(await textOf('breed'));
    expect([isAlive(pid), isAlive(child)]).toEqual([true, true]);
    await pool.close();
    expect(isAlive(pid)).toBe(false);
    // The process that adopts it has to reap it first.
    await eventually(() => expect(isAlive(child)).toBe(false));
  });

  test('is killed with the pool when it does not end by itself', async () => {
    const { pool, inspect } = start(stdioEndpoint('2025-11-25', 'stubborn'));
    const { pid } = await inspect();
    await pool.close();
    expect(isAlive(pid)).toBe(false);
  }, 20_000);

  test('that is being started is ended with the pool', async () => {
    const { pool, endpoint, logged } = start({ ...stdioEndpoint('2025-11-25'), command: 'sleep', args: ['1000'] });
    const listing = pool.tools(endpoint, SCOPE, unaborted);
    listing.catch(() => undefined);
    await eventually(() => expect(logged).toHaveLength(1));
    await pool.close();
    expect(isAlive(logged[0]?.pid ?? 0)).toBe(false);
    await expect(listing).rejects.toThrow('shutting down');
  });
});

describe('a program that is still being installed', () => {
  const started = (logged: { msg: string }[]) => logged.filter(({ msg }) => msg === 'the MCP server was started');

  async function gate(): Promise<{ file: string; open: () => Promise<void> }> {
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-gate-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = path.join(folder, 'gate');
    return { file, open: () => writeFile(file, '') };
  }

  test('is not ended when its first user no longer waits, and is usable once it runs', async () => {
    const { file, open } = await gate();
    const { pool, endpoint, call, logged } = start(gatedEndpoint(file, '2025-11-25'), { firstWaitMs: 50 });
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('MCP server "test" is still starting');
    expect(await call('echo')).toEqual({ status: 'not_sent', message: 'MCP server "test" is still starting' });
    expect(isAlive(logged[0]?.pid ?? 0)).toBe(true);
    await open();
    await eventually(async () => expect((await pool.tools(endpoint, SCOPE, unaborted)).tools).toHaveLength(8));
    expect(started(logged)).toHaveLength(1);
  });

  test.each([
    ['2025-11-25', [], 1],
    ['2025-11-25', ['strict'], 2],
    ['2026-07-28', [], 2],
    ['2026-07-28', ['pinned'], 1],
  ])('for longer than servers have to answer, of %s %j, is usable after that', async (era, quirks, starts) => {
    const { file, open } = await gate();
    const isPinned = quirks.includes('pinned');
    const endpoint = gatedEndpoint(file, era, ...quirks.filter((quirk) => quirk !== 'pinned'));
    const { pool, logged } = start(endpoint, { responseTimeoutMs: 100, firstWaitMs: 1_000 });
    const one = isPinned ? { ...endpoint, protocol: era } : endpoint;
    // The probe has already timed out.
    await expect(pool.tools(one, SCOPE, unaborted)).rejects.toThrow('is still starting');
    await open();
    await eventually(async () => expect((await pool.tools(one, SCOPE, unaborted)).protocol).toBe(era));
    expect(started(logged)).toHaveLength(starts);
  });

  test('has the time to start of its registration', async () => {
    const endpoint = { ...stdioEndpoint('2025-11-25'), command: 'sleep', args: ['1000'], startTimeoutMs: 100 };
    const { pool } = start(endpoint);
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('wrote nothing');
  });

  test('can be started before it is needed, and belongs to the first who needs it', async () => {
    const { pool, endpoint, call, logged } = start();
    const broken = { ...endpoint, id: 'broken', name: 'broken', command: '/nowhere/server' };
    await pool.startPrograms([endpoint, broken]);
    expect(started(logged)).toHaveLength(1);
    expect(logged).toContainEqual(
      expect.objectContaining({ level: 40, msg: expect.stringContaining('MCP server "broken" cannot be started') }),
    );
    expect(await call('echo')).toMatchObject({ status: 'result' });
    expect(started(logged)).toHaveLength(1);
    await pool.tools(endpoint, toolScope('ses_2', 'bob'), unaborted);
    expect(started(logged)).toHaveLength(2);
    // It runs already.
    await pool.startPrograms([endpoint]);
    expect(started(logged)).toHaveLength(2);
  });
});

describe('the memory of programs', () => {
  test('is bounded: a program that is idle makes room', async () => {
    const { pool, endpoint, inspect, logged } = start(undefined, { maxProgramBytes: 1_000_000 });
    const { pid } = await inspect();
    await pool.tools(endpoint, toolScope('ses_2', 'bob'), unaborted);
    expect(isAlive(pid)).toBe(false);
    expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(2);
  });

  test('is bounded: if all programs are in use, none is started', async () => {
    const { pool, endpoint } = start(undefined, { maxProgramBytes: 1_000_000 });
    const begun = Promise.withResolvers<void>();
    const cancel = new AbortController();
    const options = { ...calling, signal: cancel.signal, onProgress: () => begun.resolve() };
    const waiting = pool.call(endpoint, SCOPE, 'wait', {}, options);
    await begun.promise;
    await expect(pool.tools(endpoint, toolScope('ses_2', 'bob'), unaborted)).rejects.toThrow(
      /cannot be started: the programs that are in use, or are starting, take \d+ MB, and may take 1 MB/,
    );
    cancel.abort();
    await waiting;
  });
});

describe('a server that dies', () => {
  test('during a call leaves an unknown outcome, and is restarted for the next one', async () => {
    const { call, inspect, logged } = start();
    const { pid } = await inspect();
    expect(await call('die')).toMatchObject({ status: 'unknown', message: 'MCP server "test" ended with exit code 3' });
    expect(logged.at(-1)).toMatchObject({ level: 40, mcpServer: 'test', msg: 'the MCP server ended with exit code 3' });
    expect((await inspect()).pid).not.toBe(pid);
  });

  test('between two calls loses none of them, and its tools are listed again', async () => {
    const { pool, endpoint, inspect, logged } = start();
    await pool.tools(endpoint, SCOPE, unaborted);
    const { pid } = await inspect();
    process.kill(pid, 'SIGKILL');
    await eventually(() => expect(logged.at(-1)?.msg).toBe('the MCP server was ended by SIGKILL'));
    await pool.tools(endpoint, SCOPE, unaborted);
    expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(2);
    expect((await inspect()).pid).not.toBe(pid);
  });

  test('while a call is written, which it cannot have read, gets the call after its restart', async () => {
    const args = ['-c', ANSWERS_ONCE];
    const { pool, endpoint, call, logged } = start({ ...stdioEndpoint('2025-11-25'), command: '/bin/sh', args });
    expect((await pool.tools(endpoint, SCOPE, unaborted)).tools).toEqual([]);
    await eventually(() => expect(logged.at(-1)?.msg).toBe('deaf'));
    expect(await call('echo')).toMatchObject({ status: 'result' });
    expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(2);
  });

  test('leaves no process behind that it has started', async () => {
    const { textOf, inspect } = start();
    const { pid } = await inspect();
    const child = Number(await textOf('breed'));
    process.kill(pid, 'SIGKILL');
    await eventually(() => expect(isAlive(child)).toBe(false));
  });

  test('while its tools are listed is restarted', async () => {
    const { pool, endpoint, inspect } = start(undefined, { listMaxAgeMs: 0 });
    const { pid } = await inspect();
    process.kill(pid, 'SIGSTOP');
    const listing = pool.tools(endpoint, SCOPE, unaborted);
    process.kill(pid, 'SIGKILL');
    expect((await listing).tools).toHaveLength(8);
  });
});

test("a server's standard error is logged line by line, with the name of the server and shortened", async () => {
  const { pool, inspect, logged } = start(stdioEndpoint('2025-11-25', 'noisy'));
  // Text on its standard output that is no message does no harm.
  const { pid } = await inspect();
  // Killed here: a pool that ends a program reads the rest of its output for a limited time only.
  process.kill(pid, 'SIGKILL');
  await eventually(() => expect(logged.map(({ msg }) => msg)).toContain('last words'));
  await pool.close();
  const said = logged.filter(({ msg }) => !msg.startsWith('the MCP server'));
  expect(said).toEqual(
    ['listening', `${'x'.repeat(2_000)}…`, 'last words'].map((msg) =>
      expect.objectContaining({ level: 30, mcpServer: 'test', msg }),
    ),
  );
});

test('later output of a server is not logged under the turn that started it', async () => {
  const { pool, endpoint, inspect, logged } = start(stdioEndpoint('2025-11-25', 'noisy'));
  const { pid } = await withLogContext({ turnId: 'turn_1' }, inspect);
  process.kill(pid, 'SIGKILL');
  await eventually(() => expect(logged.at(-1)?.msg).toBe('the MCP server was ended by SIGKILL'));
  await withLogContext({ turnId: 'turn_2' }, () => pool.tools(endpoint, SCOPE, unaborted));
  expect(logged.filter(({ msg }) => msg === 'the MCP server was started')).toHaveLength(2);
  expect(logged.filter(({ turnId }) => turnId !== undefined)).toEqual([]);
});

test('output that is too much is logged in part, and the omission is reported', () => {
  const logged: string[] = [];
  let now = 0;
  const log = new StderrLog(pino({}, { write: (line) => void logged.push(JSON.parse(line).msg) }), () => now);
  const say = (count: number): void => {
    for (let n = 0; n < count; n++) log.push(Buffer.from(`line ${n}\n`));
  };
  say(103);
  expect(logged).toHaveLength(100);
  now = 10_000;
  say(2);
  expect(logged.slice(100)).toEqual(['3 more lines were left out', 'line 0', 'line 1']);
  say(100);
  log.end();
  expect(logged.slice(-2)).toEqual(['line 97', '2 more lines were left out']);
});
