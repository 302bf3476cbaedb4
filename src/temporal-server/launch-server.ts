import { existsSync } from 'node:fs';
import { readFile, realpath, rename, rm, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { endAtExit, endDevServers, findDevServers, spawnDevServer } from './dev-server.ts';
import { commandLineOf, isListenerOurs } from '../lib/processes.ts';
import { errorMessage, ProvisionError } from '../lib/errors.ts';
import { waitUntilReady } from './wait-until-ready.ts';

/** A server's files and settings. */
export interface ServerHome {
  databaseFile: string;
  logFile: string;
  binary: string;
  namespace: string;
  settings: readonly string[];
}

export interface RunningServer {
  port: number;
  /** Resolves with the reason once the server has ended. */
  ended: Promise<string>;
}

/** The server ended before it was ready. */
export class ServerEndedError extends ProvisionError {
  static {
    this.prototype.name = 'ServerEndedError';
  }
}

const START_MS = 20_000;
const ADOPT_MS = 3000;
const REPLACE_GRACE_MS = 5000;
const WATCH_MS = 1000;

/**
 * Adopts the server that is already running on a database because its Everturn was killed. A server with other
 * settings, with another or an unknown executable, or that does not respond is stopped instead.
 */
export async function adoptServer(home: ServerHome, log: Logger): Promise<RunningServer | undefined> {
  const servers = await findDevServers(home.databaseFile);
  const [server] = servers;
  if (!server) return undefined;
  const { pid, port, settings, program } = server;
  if (servers.length > 1 || settings !== home.settings.join(' ')) {
    log.info(`replacing Temporal's server (process ${pid}): it runs with other settings`);
    await endDevServers(home.databaseFile, REPLACE_GRACE_MS);
    return undefined;
  }
  if (program !== (await realpath(home.binary))) {
    log.info(`replacing Temporal's server (process ${pid}): it does not run ${home.binary}`);
    await endDevServers(home.databaseFile, REPLACE_GRACE_MS);
    return undefined;
  }
  try {
    const { namespace } = home;
    await waitUntilReady({ port, namespace, timeoutMs: ADOPT_MS, signal: AbortSignal.timeout(ADOPT_MS) });
    await checkListener(port);
  } catch {
    log.warn(`replacing Temporal's server (process ${pid}): it does not respond`);
    await endDevServers(home.databaseFile, 0);
    return undefined;
  }
  await rm(setupMarker(home), { force: true });
  const ended = endOf(pid);
  void ended.then(endAtExit(pid));
  return { port, ended };
}

/**
 * Starts a server and waits until it is usable. When `stop` is aborted before, the server is ended.
 *
 * @throws ProvisionError, or the reason of `stop`
 */
export async function launchServer(home: ServerHome, port: number, stop: AbortSignal): Promise<RunningServer> {
  const { databaseFile, logFile, binary, namespace, settings } = home;
  await prepareDatabase(home);
  stop.throwIfAborted();
  if (existsSync(logFile)) await rename(logFile, previousLog(logFile));
  const { ended } = await spawnDevServer({ binary, port, settings, logFile });
  const failed = new AbortController();
  void ended.then((how) => failed.abort(new Error(how)));
  try {
    const signal = AbortSignal.any([failed.signal, stop]);
    await waitUntilReady({ port, namespace, timeoutMs: START_MS, signal });
    // Another program's server may have answered, on a port that this one could not get.
    failed.signal.throwIfAborted();
    await checkListener(port);
  } catch (cause) {
    await endDevServers(databaseFile, 0);
    stop.throwIfAborted();
    const reason: unknown = failed.signal.aborted ? failed.signal.reason : cause;
    const lines = await lastLines(logFile);
    const message = `Temporal's server did not start: ${errorMessage(reason)}${lines}\nIts log is ${logFile}`;
    throw failed.signal.aborted ? new ServerEndedError(message, { cause }) : new ProvisionError(message, { cause });
  }
  await rm(setupMarker(home), { force: true });
  return { port, ended };
}

/** @throws Error if another user's program listens on the port */
async function checkListener(port: number): Promise<void> {
  if (!(await isListenerOurs(port))) throw new Error(`another user's program listens on port ${port}`);
}

/**
 * Deletes a database whose tables are incomplete: no server starts on it if the first was killed while creating them. A
 * marker file exists beside the database until its first server is ready; until then it holds no data.
 */
async function prepareDatabase(home: ServerHome): Promise<void> {
  const { databaseFile } = home;
  if (existsSync(setupMarker(home))) {
    await Promise.all(['', '-wal', '-shm'].map((suffix) => rm(`${databaseFile}${suffix}`, { force: true })));
  }
  if (!existsSync(databaseFile)) await writeFile(setupMarker(home), '');
}

function setupMarker({ databaseFile }: ServerHome): string {
  return `${databaseFile}-setup`;
}

function previousLog(logFile: string): string {
  return logFile.replace(/(\.log)?$/, '.previous.log');
}

async function lastLines(logFile: string): Promise<string> {
  const text = await readFile(logFile, 'utf8');
  const lines = text.trim().split('\n').slice(-3);
  return lines.map((line) => `\n  ${line.slice(0, 300)}`).join('');
}

/** Waits for the end of a process that is not a child of this one, by polling. */
async function endOf(pid: number): Promise<string> {
  const commandLine = await commandLineOf(pid);
  for (let now = commandLine; now && now === commandLine; now = await commandLineOf(pid)) {
    await sleep(WATCH_MS, undefined, { ref: false });
  }
  return 'its process has ended';
}
