import { spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SqliteSync } from '../catalog/sqlite.ts';
import { DYNAMIC_CONFIG, type DynamicConfig } from './dynamic-config.ts';
import { isEnding, listOwnProcesses, programOf } from '../lib/processes.ts';

/** How a server is run, but for its port. */
export interface DevServerSettings {
  databaseFile: string;
  /** Created in the database before the server starts, so that it can be used at once. */
  namespace: string;
  sqliteSync: SqliteSync;
  dynamicConfig: DynamicConfig;
}

/** A server that is running on our database. */
export interface FoundServer {
  pid: number;
  port: number;
  /** As of {@link settingsArguments}, joined by blanks. */
  settings: string;
  /** The file that it runs; undefined where the system does not say it. */
  program: string | undefined;
}

/**
 * The server has an HTTP interface beside gRPC, on a port that it chooses, and it cannot be turned off. A web page could
 * send commands to it, and nothing of ours uses it. No request can name this host: Go refuses a blank in a Host header.
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
    // A step takes 25 ms without the log ahead.
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
 * Starts a server that outlives us and writes to `logFile`, which is overwritten.
 *
 * Gives a promise that resolves, with how it ended, once the server has: also if the program can't be run.
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
      // In a process group of its own it does not get the terminal's ctrl-C, and is there until we have drained.
      detached: true,
      stdio: ['ignore', output.fd, output.fd],
    });
    child.unref();
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
 * The servers of this user that are running on a database. They are found by their command lines and not by a file of
 * ours that says which there are: it would be missing if we were killed right after starting a server, and after a
 * reboot it would name the process id of another program.
 */
export async function findDevServers(databaseFile: string): Promise<FoundServer[]> {
  const processes = await listOwnProcesses();
  const found = processes.map(async ({ pid, commandLine }) => {
    const [, before = '', port, after = ''] = / server start-dev (.* )?--port (\d+)( .*)?$/.exec(commandLine) ?? [];
    const settings = `${before}${after.trimStart()}`;
    const ours = ` ${settings} `.includes(` --db-filename ${databaseFile} `);
    return ours ? [{ pid, port: Number(port), settings, program: await programOf(pid) }] : [];
  });
  return (await Promise.all(found)).flat();
}

/**
 * Ends the servers that are running on a database; those that have not done so within `graceMs` are killed. Their ports are
 * free then.
 */
export async function endDevServers(databaseFile: string, graceMs: number): Promise<void> {
  const deadline = Date.now() + graceMs;
  const asked = new Set<number>();
  for (;;) {
    const servers = await findDevServers(databaseFile);
    const ending = await Promise.all(Array.from(asked, isEnding));
    if (servers.length === 0 && !ending.includes(true)) return;
    for (const { pid } of servers) {
      if (Date.now() >= deadline) signal(pid, 'SIGKILL');
      else if (!asked.has(pid)) signal(pid, 'SIGTERM');
      asked.add(pid);
    }
    await sleep(20);
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // It has ended; with EPERM its id is another user's process by now.
    const gone = error instanceof Error && 'code' in error && (error.code === 'ESRCH' || error.code === 'EPERM');
    if (!gone) throw error;
  }
}
