import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client, Connection } from '@temporalio/client';
import { pino } from 'pino';
import { afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import {
  startEmbeddedTemporal,
  type EmbeddedTemporal,
  type EmbeddedTemporalOptions,
} from '../../src/temporal-server/embedded-server.ts';
import { isListenerOurs } from '../../src/lib/processes.ts';
import { ProvisionError } from '../../src/lib/errors.ts';
import { eventually } from '../support/eventually.ts';
import { killUsersAtEnd } from '../support/reaper.ts';
import { isAlive } from '../support/is-alive.ts';
import { listOwnProcesses } from '../support/own-processes.ts';
import { findTemporalCli } from '../support/temporal-cli.ts';

vi.setConfig({ testTimeout: 60_000 });

const run = promisify(execFile);

const namespace = 'everturn';
const NOBODY = 65_534;
let binary: string;
let dataDir: string;
let messages: string[];
let running: { stop(): Promise<void> }[];
const log = pino({ base: null }, { write: (line: string) => void messages.push(line) });

// The program may have to be installed.
beforeAll(async () => {
  binary = await findTemporalCli();
}, 600_000);

beforeEach(async () => {
  messages = [];
  running = [];
  dataDir = await realpath(await mkdtemp(path.join(tmpdir(), 'everturn-temporal-')));
  killUsersAtEnd(dataDir);
});

afterEach(async () => {
  const stopped = Promise.all(running.map((server) => server.stop()));
  // Sooner than the servers end by themselves, and also when the test has failed.
  for (const { pid } of await servers()) process.kill(pid, 'SIGKILL');
  await stopped;
  await rm(dataDir, { recursive: true, force: true });
});

const databaseFile = (folder = dataDir): string => path.join(folder, 'temporal/temporal.db');
const recordFile = (): string => path.join(dataDir, 'temporal/server.json');

/** The servers on a database that the system lists, whatever is recorded of them. */
async function servers(folder = dataDir): Promise<{ pid: number; port: number }[]> {
  return (await listOwnProcesses()).flatMap(({ pid, commandLine }) => {
    const [, port] = / server start-dev --port (\d+) /.exec(commandLine) ?? [];
    return port !== undefined && commandLine.includes(` --db-filename ${databaseFile(folder)} `)
      ? [{ pid, port: Number(port) }]
      : [];
  });
}

async function start(options: Partial<EmbeddedTemporalOptions> = {}): Promise<EmbeddedTemporal> {
  const server = await startEmbeddedTemporal({ dataDir, binary, namespace, log, ...options });
  running.push(server);
  return server;
}

async function clientOf(address: string): Promise<Client> {
  const connection = await Connection.connect({ address });
  onTestFinished(() => connection.close());
  return new Client({ connection, namespace });
}

async function startWorkflow(client: Client, workflowId: string): Promise<void> {
  await client.workflow.start('nothing', { workflowId, taskQueue: 'nobody', args: [] });
}

async function isThere(client: Client, workflowId: string): Promise<boolean> {
  const { status } = await client.workflow.getHandle(workflowId).describe();
  return status.name === 'RUNNING';
}

async function theServer(): Promise<{ pid: number; port: number }> {
  const running = await servers();
  expect(running).toHaveLength(1);
  return running[0]!;
}

/** Starts the server from another process, and kills that process's whole group, which is what receives a Ctrl-C. */
async function leaveBehind(): Promise<{ address: string; pid: number }> {
  const script = fileURLToPath(new URL('../support/embedded-parent.ts', import.meta.url));
  const parent = spawn(process.execPath, [script, dataDir, binary, namespace], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exit = once(parent, 'exit');
  const [output] = await Promise.race([once(parent.stdout, 'data'), exit]);
  if (parent.pid) process.kill(-parent.pid, 'SIGKILL');
  await exit;
  return { address: String(output).trim(), pid: (await theServer()).pid };
}

test('a stop ends the process; the next start has a new process and the same data', async () => {
  const first = await start();
  await startWorkflow(await clientOf(first.address), 'kept');
  const { pid } = await theServer();
  await Promise.all([first.stop(), first.stop()]);
  expect(await servers()).toEqual([]);

  const second = await start();
  expect(second.adopted).toBe(false);
  expect((await theServer()).pid).not.toBe(pid);
  expect(await isThere(await clientOf(second.address), 'kept')).toBe(true);
});

test('tasks are dispatched and timers fire without the delays of the default configuration', async () => {
  const client = await clientOf((await start()).address);
  const deadline = Date.now() + 30_000;
  const request = { namespace, taskQueue: { name: 'polled' } };
  const dispatchMs = async (workflowId: string, startDelay = 0): Promise<number> => {
    const task = client.withDeadline(deadline, () => client.workflowService.pollWorkflowTaskQueue(request));
    const startedAt = performance.now();
    await client.workflow.start('nothing', { workflowId, taskQueue: 'polled', args: [], startDelay });
    await task;
    return performance.now() - startedAt;
  };
  const times: number[] = [];
  for (let round = 0; round < 100; round += 1) times.push(await dispatchMs(`round-${round}`));
  // A task that goes to a partition of the queue that is not polled is dispatched 2 s later: on average one in 30 did.
  const partitions = await client.workflowService.listTaskQueuePartitions(request);
  expect(partitions.workflowTaskQueuePartitions).toHaveLength(1);
  // 50 when a burst has been used up; here it is 6. Other load on the machine slows some of them, but not all.
  const means = [60, 70, 80, 90].map((from) => times.slice(from, from + 10).reduce((sum, ms) => sum + ms / 10, 0));
  expect(Math.min(...means)).toBeLessThan(40);
  // 900 or more, each of them; here it is 110.
  const delayed: number[] = [];
  for (let round = 0; round < 5; round += 1) delayed.push(await dispatchMs(`delayed-${round}`, 100));
  expect(Math.min(...delayed)).toBeLessThan(500);
});

test('dynamic configuration of the caller is applied', async () => {
  const { address } = await start({ dynamicConfig: { 'limit.maxIDLength': 100 } });
  const client = await clientOf(address);
  await startWorkflow(client, 'x'.repeat(100));
  await expect(startWorkflow(client, 'x'.repeat(101))).rejects.toThrow(/Failed to start/);
});

test('a server that outlived its Everturn is adopted with its port, and stopped at the end', async () => {
  const left = await leaveBehind();
  await startWorkflow(await clientOf(left.address), 'going on');

  const server = await start();
  expect(server).toMatchObject({ address: left.address, adopted: true });
  expect((await theServer()).pid).toBe(left.pid);
  expect(await isThere(await clientOf(server.address), 'going on')).toBe(true);

  await server.stop();
  expect(await servers()).toEqual([]);
});

test.each(['started', 'adopted'])(
  'a server that was %s ends when its Everturn exits without stopping it',
  async (how) => {
    if (how === 'adopted') await leaveBehind();
    const program = `
    import { pino } from 'pino';
    import { startEmbeddedTemporal } from ${JSON.stringify(new URL('../../src/temporal-server/embedded-server.ts', import.meta.url))};
    const options = ${JSON.stringify({ dataDir, binary, namespace })};
    const { adopted } = await startEmbeddedTemporal({ ...options, log: pino({ level: 'silent' }) });
    console.log(adopted ? 'adopted' : 'started');
    process.exit();
  `;
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', program]);
    expect(stdout.trim()).toBe(how);
    await eventually(async () => expect(await servers()).toEqual([]));
  },
);

test('a server that does not respond is replaced', async () => {
  const left = await leaveBehind();
  const client = await clientOf(left.address);
  await startWorkflow(client, 'kept');
  process.kill(left.pid, 'SIGSTOP');
  // On a busy machine it still runs for a moment.
  const answers = () => client.withDeadline(Date.now() + 1000, () => isThere(client, 'kept'));
  await eventually(() => expect(answers()).rejects.toThrow(/Failed to describe/));

  const server = await start();
  expect(server.adopted).toBe(false);
  expect((await theServer()).pid).not.toBe(left.pid);
  expect(await isThere(await clientOf(server.address), 'kept')).toBe(true);
  expect(messages.join('')).toContain('does not respond');
});

test('a server that runs with other settings is replaced', async () => {
  const left = await leaveBehind();
  const server = await start({ dynamicConfig: { 'limit.maxIDLength': 100 } });
  expect(server.adopted).toBe(false);
  expect((await theServer()).pid).not.toBe(left.pid);
  expect(messages.join('')).toContain('other settings');
});

test('the server gets no keys from the environment', async () => {
  onTestFinished(() => void vi.unstubAllEnvs());
  vi.stubEnv('OPENAI_API_KEY', 'sk-secret');
  vi.stubEnv('EVERTURN_API_KEYS', 'ann=sk-secret');
  await start();
  const environment = await readFile(`/proc/${(await theServer()).pid}/environ`, 'utf8');
  expect(environment).toContain('PATH=');
  expect(environment).not.toContain('sk-secret');
});

test('the server trades memory for processor time, unless the operator sets GOGC', async () => {
  const environment = async (): Promise<string[]> =>
    (await readFile(`/proc/${(await theServer()).pid}/environ`, 'utf8')).split('\0');
  const first = await start();
  expect(await environment()).toContain('GOGC=200');
  await first.stop();

  onTestFinished(() => void vi.unstubAllEnvs());
  vi.stubEnv('GOGC', '50');
  await start();
  expect((await environment()).filter((one) => one.startsWith('GOGC='))).toEqual(['GOGC=50']);
});

test.each(['started', 'adopted'])('a server that was %s and dies is restarted on its port', async (how) => {
  if (how === 'adopted') await leaveBehind();
  const server = await start();
  expect(server.adopted).toBe(how === 'adopted');
  const client = await clientOf(server.address);
  await startWorkflow(client, 'kept');

  for (let death = 1; death <= 2; death += 1) {
    const { pid, port } = await theServer();
    process.kill(pid, 'SIGKILL');
    await eventually(() => expect(messages.filter((line) => line.includes('is running again'))).toHaveLength(death));
    expect(await theServer()).toMatchObject({ port });
    // On the connection from before.
    expect(await isThere(client, 'kept')).toBe(true);
  }
  expect(messages.filter((line) => line.includes('has ended'))).toHaveLength(2);
});

test('a stop during a restart of the server leaves no process behind', async () => {
  const server = await start();
  process.kill((await theServer()).pid, 'SIGKILL');
  await eventually(() => expect(messages.join('')).toContain('is restarted'));
  await server.stop();
  expect(await servers()).toEqual([]);
});

test('the server of another data folder is not touched', async () => {
  const mine = await start();
  const otherDir = path.join(dataDir, 'other');
  await start({ dataDir: otherDir });
  const others = await servers(otherDir);
  expect(others).toHaveLength(1);
  await mine.stop();
  expect(await servers(otherDir)).toEqual(others);
  expect(messages.join('')).not.toContain('has ended');
});

test('a database whose first server died while it created the tables is created again', async () => {
  await mkdir(path.dirname(databaseFile()), { recursive: true });
  await writeFile(`${databaseFile()}-setup`, '');
  writeTables('CREATE TABLE namespaces (half TEXT)');
  await startWorkflow(await clientOf((await start()).address), 'works');
  expect(await readdir(path.dirname(databaseFile()))).not.toContain('temporal.db-setup');
});

test("a database that does not work is never deleted, and the error shows the server's message", async () => {
  await mkdir(path.dirname(databaseFile()), { recursive: true });
  writeTables('CREATE TABLE precious (data TEXT)', "INSERT INTO precious VALUES ('kept')");
  const error = await start().catch((error: unknown) => error);
  expect(error).toBeInstanceOf(ProvisionError);
  expect(String(error)).toMatch(/exit code 1/);
  expect(String(error)).toMatch(/no such table/);
  expect(String(error)).toContain(path.join(dataDir, 'temporal/server.log'));
  const database = new DatabaseSync(databaseFile());
  expect(database.prepare('SELECT data FROM precious').all()).toEqual([{ data: 'kept' }]);
  database.close();
});

test('a program that does not start is reported, and another may be started', async () => {
  const broken = path.join(dataDir, 'broken');
  await writeFile(broken, '#!/bin/sh\necho the disk is on fire\nexit 7\n');
  await chmod(broken, 0o755);
  await expect(start({ binary: broken })).rejects.toThrow(/exit code 7\n.*the disk is on fire/);
  await expect(start({ binary: path.join(dataDir, 'absent') })).rejects.toThrow(/ENOENT/);
  await start();
});

test("the server's HTTP interface rejects every request, whatever its Host, and gRPC works", async () => {
  const { address } = await start();
  await startWorkflow(await clientOf(address), 'by gRPC');
  const paths = ['/api/v1/namespaces/everturn/workflows', '/namespaces/everturn/workflows'];
  const hosts = ['host: evil.example', 'host: localhost', 'host: 127.0.0.1', 'host: nobody.invalid', 'host:', 'x: y'];
  const ports = await listeningPorts((await theServer()).pid);
  const answers: string[] = [];
  for (const port of ports) {
    for (const request of paths.flatMap((path) => hosts.map((host) => `GET ${path} HTTP/1.0\r\n${host}\r\n\r\n`))) {
      answers.push(await firstLine(port, request));
    }
  }
  expect(answers).toContain('HTTP/1.0 403 Forbidden');
  // The metrics have no such path.
  expect(answers.filter((answer) => answer.startsWith('HTTP/') && !/^HTTP\/1.0 40[34] /.test(answer))).toEqual([]);
});

/** Only root can start a process of another user. */
const asRoot = { skip: process.getuid?.() !== 0 };

test('a program that got the process id of an ended server is neither adopted nor ended', async () => {
  const left = await leaveBehind();
  process.kill(left.pid, 'SIGKILL');
  await eventually(async () => expect(await servers()).toEqual([]));
  const decoy = spawn('sleep', ['1000'], { stdio: 'ignore' });
  onTestFinished(() => void decoy.kill('SIGKILL'));
  const record = JSON.parse(await readFile(recordFile(), 'utf8')) as object;
  await writeFile(recordFile(), JSON.stringify({ ...record, pid: decoy.pid }));
  const server = await start();
  expect(server.adopted).toBe(false);
  expect(decoy.pid && isAlive(decoy.pid)).toBe(true);
});

test('a server whose record is damaged gets no second one beside it', async () => {
  const left = await leaveBehind();
  await writeFile(recordFile(), '{"pid":');
  const error = await start().catch((error: unknown) => error);
  expect(error).toBeInstanceOf(ProvisionError);
  expect(String(error)).toContain(`uses ${databaseFile()}: end that process`);
  expect(messages.join('')).toContain(`${recordFile()} is ignored: it is damaged`);
  expect((await theServer()).pid).toBe(left.pid);
  process.kill(left.pid, 'SIGKILL');
  await eventually(async () => expect(await servers()).toEqual([]));
  await start();
});

test('no server is left without a record when its Everturn is killed while it starts one', async () => {
  // Its writer waits for a reader.
  await mkdir(path.dirname(databaseFile()), { recursive: true });
  await run('mkfifo', [`${recordFile()}.part`]);
  const script = fileURLToPath(new URL('../support/embedded-parent.ts', import.meta.url));
  const parent = spawn(process.execPath, [script, dataDir, binary, namespace], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await eventually(async () => expect(await servers()).toHaveLength(1));
  const exit = once(parent, 'exit');
  parent.kill('SIGKILL');
  await exit;
  await eventually(async () => expect(await servers()).toEqual([]));
  await rm(`${recordFile()}.part`);
  expect((await start()).adopted).toBe(false);
});

test('a server of another program is replaced', async () => {
  const left = await leaveBehind();
  const other = path.join(dataDir, 'other-temporal');
  await writeFile(other, `#!/bin/sh\nexec ${binary} "$@"\n`);
  await chmod(other, 0o755);
  const server = await start({ binary: other });
  expect(server.adopted).toBe(false);
  expect((await theServer()).pid).not.toBe(left.pid);
  expect(messages.join('')).toContain(`it does not run ${other}`);
});

test("a port on which another user listens is not taken for the server's", asRoot, async () => {
  const mine = createServer().listen(0, '127.0.0.1');
  await once(mine, 'listening');
  onTestFinished(() => void mine.close());
  const address = mine.address();
  expect(await isListenerOurs(typeof address === 'object' && address ? address.port : 0)).toBe(true);
  const script = `require('node:net').createServer().listen(0, '127.0.0.1', function () { console.log(this.address().port) })`;
  const stranger = spawn('/usr/bin/env', ['node', '--eval', script], {
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
    uid: NOBODY,
    gid: NOBODY,
  });
  onTestFinished(() => void stranger.kill('SIGKILL'));
  const [port] = await once(stranger.stdout, 'data');
  expect(await isListenerOurs(Number(port))).toBe(false);
});

async function listeningPorts(pid: number): Promise<number[]> {
  const { stdout } = await run('ss', ['-ltnpH']);
  const lines = stdout.split('\n').filter((line) => line.includes(`pid=${pid},`));
  return lines.map((line) => Number(/127\.0\.0\.1:(\d+)/.exec(line)?.[1]));
}

/** The response of a port; empty if it closes the connection without one. */
async function firstLine(port: number, request: string): Promise<string> {
  const socket = connect(port, '127.0.0.1').setTimeout(5_000, () => socket.destroy());
  socket.end(request);
  const answer = await text(socket).catch(() => '');
  return answer.split('\r\n')[0] ?? '';
}

function writeTables(...statements: string[]): void {
  const database = new DatabaseSync(databaseFile());
  for (const statement of statements) database.exec(statement);
  database.close();
}
