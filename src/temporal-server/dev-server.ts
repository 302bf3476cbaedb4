import { spawn } from 'node:child_process';
import { open, realpath, stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SqliteSync } from '../catalog/sqlite.ts';
import { DYNAMIC_CONFIG, type DynamicConfig } from './dynamic-config.ts';
import { temporalEnv } from './temporal-env.ts';
import { ProvisionError } from '../lib/errors.ts';
import { isRunning, startOf } from '../lib/processes.ts';
import { findDevServer, removeServerRecord, writeServerRecord } from './server-record.ts';

/** The settings of a server, without its port. */
interface DevServerSettings {
  databaseFile: string;
  /** Created in the database before the server starts, so that it is usable immediately. */
  namespace: string;
  sqliteSync: SqliteSync;
  dynamicConfig: DynamicConfig;
}

/** A server's files and settings. */
export interface ServerHome {
  databaseFile: string;
  logFile: string;
  binary: string;
  namespace: string;
  settings: readonly string[];
}

/**
 * Disables the server's HTTP interface, which listens on a port that the server chooses, cannot be turned off, and
 * would accept commands from web pages. No request can name this host, because Go rejects a space in a Host header.
 */
const HTTP_ALLOWED_HOSTS = ['no host'];

export function settingsArguments(settings: DevServerSettings): string[] {
  const { databaseFile, namespace, sqliteSync, dynamicConfig } = settings;
  return [
    '--db-filename',
    databaseFile,
    '--namespace',
    namespace,
    '--ip',
    '127.0.0.1',
    '--headless',
    // Without write-ahead logging a step takes 25 ms.
    '--sqlite-pragma',
    'journal_mode=WAL',
    '--sqlite-pragma',
    `synchronous=${sqliteSync}`,
    ...Object.entries({ ...DYNAMIC_CONFIG, 'frontend.httpAllowedHosts': HTTP_ALLOWED_HOSTS, ...dynamicConfig }).flatMap(
      ([key, value]) => ['--dynamic-config-value', `${key}=${JSON.stringify(value)}`],
    ),
  ];
}

/**
 * Go's garbage collector runs when the heap has grown by this many percent, 100 by default. With 200 a turn takes 18 %
 * less of the server's processor time, for a third more memory (303 MB instead of 235); with 400 20 % less, for twice
 * the memory.
 */
const GOGC = '200';

/** Waits for a line on its standard input, and becomes the program of its arguments; ends if the input does. */
const WHEN_RECORDED = 'read -r line && exec "$@" </dev/null';

/**
 * Starts a server that survives this process. It writes to `logFile`, which is overwritten.
 *
 * The server's process waits until its record is written. So no server runs without a record if this process is killed,
 * and the next start finds each one.
 *
 * @returns `ended`, which resolves with the reason once the server has ended, also if the program cannot be run
 */
export async function spawnDevServer(
  { binary, settings, databaseFile, logFile }: ServerHome,
  port: number,
): Promise<{ ended: Promise<string> }> {
  const output = await open(logFile, 'w');
  try {
    const program = await programIdentity(binary);
    const command = [binary, 'server', 'start-dev', '--port', String(port), ...settings];
    const child = spawn('/bin/sh', ['-c', WHEN_RECORDED, 'sh', ...command], {
      // In a process group of its own it does not get the terminal's ctrl-C, so it runs until the worker has drained.
      detached: true,
      env: { GOGC, ...temporalEnv(process.env) },
      stdio: ['pipe', output.fd, output.fd],
    });
    child.unref();
    const { pid } = child;
    if (pid !== undefined) child.once('exit', endAtExit(pid));
    const ended = new Promise<string>((resolve) => {
      child.once('exit', (code, signal) => resolve(signal ? `ended by ${signal}` : `exit code ${code}`));
      child.once('error', (error) => resolve(error.message));
    });
    // It has ended: `ended` has the reason.
    child.stdin?.on('error', () => undefined);
    try {
      const start = pid === undefined ? undefined : await startOf(pid);
      if (pid !== undefined && start !== undefined) {
        await writeServerRecord({ pid, start, port, program, databaseFile, settings: [...settings] });
        child.stdin?.write('recorded\n');
      }
    } finally {
      child.stdin?.end();
    }
    return { ended };
  } finally {
    await output.close();
  }
}

/** Differs if the program was replaced by another version in its place. */
export async function programIdentity(binary: string): Promise<string> {
  const file = await realpath(binary);
  return `${file} ${(await stat(file)).mtimeMs}`;
}

/**
 * Ends a server when this process exits without having stopped it, as after an uncaught exception. Only SIGKILL, and a
 * signal that is not handled, leave it running.
 * @returns a function to be called when the server has ended: its process id may be reused for another program
 */
export function endAtExit(pid: number): () => void {
  const end = (): void => void signal(pid, 'SIGTERM');
  process.once('exit', end);
  return () => void process.off('exit', end);
}

/**
 * Terminates the server that is running on a database, and kills it if it is left after `graceMs`. Its files and its port
 * are free then.
 */
export async function endDevServer(databaseFile: string, graceMs: number): Promise<void> {
  const server = await findDevServer(databaseFile);
  if (!server) return;
  const deadline = Date.now() + graceMs;
  let next: NodeJS.Signals | 0 = 'SIGTERM';
  while (await isRunning(server)) {
    if (!signal(server.pid, Date.now() < deadline ? next : 'SIGKILL')) {
      throw new ProvisionError(
        `process ${server.pid}, which runs Temporal on ${databaseFile}, belongs to another user: end it, or start as that user`,
      );
    }
    next = 0;
    await sleep(20);
  }
  await removeServerRecord(databaseFile);
}

/** Signals a process if it still runs. Returns false if it is another user's. */
function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, name);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'EPERM') return false;
    if (code !== 'ESRCH') throw error;
  }
  return true;
}
