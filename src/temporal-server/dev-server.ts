import { spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SqliteSync } from '../catalog/sqlite.ts';
import { DYNAMIC_CONFIG, type DynamicConfig } from './dynamic-config.ts';
import { programEnv } from './program-env.ts';
import { commandLineOf, isEnding, listOwnProcesses, programOf } from '../lib/processes.ts';

/** The settings of a server, without its port. */
export interface DevServerSettings {
  databaseFile: string;
  /** Created in the database before the server starts, so that it is usable immediately. */
  namespace: string;
  sqliteSync: SqliteSync;
  dynamicConfig: DynamicConfig;
}

/** A server that is running on the data folder's database. */
export interface FoundServer {
  pid: number;
  port: number;
  /** Its arguments as returned by {@link settingsArguments}, joined by spaces. */
  settings: string;
  /** Its executable; undefined on systems that do not provide it. */
  program: string | undefined;
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

/**
 * Starts a server that survives this process. It writes to `logFile`, which is overwritten.
 *
 * @returns `ended`, which resolves with the reason once the server has ended, also if the program cannot be run
 */
export async function spawnDevServer({
  binary,
  port,
  settings,
  logFile,
}: {
  binary: string;
  port: number;
  settings: readonly string[];
  logFile: string;
}): Promise<{ ended: Promise<string> }> {
  const output = await open(logFile, 'w');
  try {
    const child = spawn(binary, ['server', 'start-dev', '--port', String(port), ...settings], {
      // In a process group of its own it does not get the terminal's ctrl-C, so it runs until the worker has drained.
      detached: true,
      env: { GOGC, ...programEnv(process.env) },
      stdio: ['ignore', output.fd, output.fd],
    });
    child.unref();
    if (child.pid !== undefined) child.once('exit', endAtExit(child.pid));
    const ended = new Promise<string>((resolve) => {
      child.once('exit', (code, signal) => resolve(signal ? `ended by ${signal}` : `exit code ${code}`));
      child.once('error', (error) => resolve(error.message));
    });
    return { ended };
  } finally {
    await output.close();
  }
}

/**
 * Ends a server when this process exits without having stopped it, as after an uncaught exception. Only SIGKILL, and a
 * signal that is not handled, leave it running.
 * @returns a function to be called when the server has ended: its process id may be given to another program
 */
export function endAtExit(pid: number): () => void {
  const end = (): void => void signal(pid, 'SIGTERM');
  process.once('exit', end);
  return () => void process.off('exit', end);
}

/**
 * Finds this user's servers that are running on a database, by their command lines. A file with their process ids would
 * be missing if this process was killed right after starting a server, and stale after a reboot.
 */
export async function findDevServers(databaseFile: string): Promise<FoundServer[]> {
  const processes = await listOwnProcesses();
  const found = processes.map(async ({ pid, commandLine }) => {
    const run = parseCommandLine(commandLine, databaseFile);
    return run ? [{ pid, ...run, program: await programOf(pid) }] : [];
  });
  return (await Promise.all(found)).flat();
}

/** Returns undefined if it is not the command line of a server on the database. */
function parseCommandLine(commandLine: string, databaseFile: string): { port: number; settings: string } | undefined {
  const [, before = '', port, after = ''] = / server start-dev (.* )?--port (\d+)( .*)?$/.exec(commandLine) ?? [];
  const settings = `${before}${after.trimStart()}`;
  const isOnDatabase = ` ${settings} `.includes(` --db-filename ${databaseFile} `);
  return isOnDatabase ? { port: Number(port), settings } : undefined;
}

/**
 * Terminates the servers that are running on a database, and kills those left after `graceMs`. Their ports are free
 * then.
 */
export async function endDevServers(databaseFile: string, graceMs: number): Promise<void> {
  const deadline = Date.now() + graceMs;
  for (;;) {
    const servers = await findDevServers(databaseFile);
    if (servers.length === 0) return;
    await Promise.all(servers.map(({ pid }) => endDevServer(pid, databaseFile, deadline)));
  }
}

/** Follows one process by its id: to list all processes takes 20 ms of processor time, 50 times during a stop. */
async function endDevServer(pid: number, databaseFile: string, deadline: number): Promise<void> {
  let next: NodeJS.Signals | 0 = 'SIGTERM';
  do {
    if (!signal(pid, Date.now() < deadline ? next : 'SIGKILL')) return;
    next = 0;
    await sleep(20);
  } while (parseCommandLine(await commandLineOf(pid), databaseFile) || (await isEnding(pid)));
}

/** Returns false if the process has ended. */
function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name);
  } catch (error) {
    // EPERM means that its id was reused by another user's process.
    const gone = error instanceof Error && 'code' in error && (error.code === 'ESRCH' || error.code === 'EPERM');
    if (!gone) throw error;
    return false;
  }
}
