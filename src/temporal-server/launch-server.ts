import { existsSync } from 'node:fs';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Logger } from 'pino';
import { endAtExit, endDevServer, programIdentity, spawnDevServer, type ServerHome } from './dev-server.ts';
import { isBusy } from '../lib/data-dir-lock.ts';
import { isListenerOurs, isRunning, type StartedProcess } from '../lib/processes.ts';
import { findDevServer } from './server-record.ts';
import { errorMessage, ProvisionError } from '../lib/errors.ts';
import { waitUntilReady } from './wait-until-ready.ts';

export interface RunningServer {
  port: number;
  /** Resolves with the reason once the server has ended. */
  ended: Promise<string>;
}

/** The server ended before it was ready. */
export class ServerEndedError extends ProvisionError {}

const START_MS = 20_000;
const ADOPT_MS = 3000;
const REPLACE_GRACE_MS = 5000;
const WATCH_MS = 1000;
/** How long a start waits for the end of a backup of the database. */
const BACKUP_MS = 5000;

/**
 * Adopts the server that is already running on a database because its Everturn was killed. A server with other
 * settings, with another program, or that does not respond is stopped instead.
 */
export async function adoptServer(home: ServerHome, log: Logger): Promise<RunningServer | undefined> {
  const { databaseFile, binary, namespace } = home;
  const server = await findDevServer(databaseFile, (reason) => log.warn(reason));
  if (!server) return undefined;
  const { pid, port, settings, program } = server;
  const isOther = !isDeepStrictEqual(settings, home.settings);
  if (isOther || program !== (await programIdentity(binary))) {
    const reason = isOther ? 'it runs with other settings' : `it does not run ${binary}`;
    log.info(`replacing Temporal's server (process ${pid}): ${reason}`);
    await endDevServer(databaseFile, REPLACE_GRACE_MS);
    return undefined;
  }
  try {
    await waitUntilReady({ port, namespace, timeoutMs: ADOPT_MS, signal: AbortSignal.timeout(ADOPT_MS) });
    await checkListener(port);
  } catch {
    log.warn(`replacing Temporal's server (process ${pid}): it does not respond`);
    await endDevServer(databaseFile, 0);
    return undefined;
  }
  await rm(setupMarker(home), { force: true });
  const ended = endOf(server);
  void ended.then(endAtExit(pid));
  return { port, ended };
}

/**
 * Starts a server and waits until it is usable. When `stop` is aborted before, the server is ended.
 *
 * @throws ProvisionError, or the reason of `stop`
 */
export async function launchServer(home: ServerHome, port: number, stop: AbortSignal): Promise<RunningServer> {
  const { databaseFile, logFile, namespace } = home;
  await prepareDatabase(home);
  stop.throwIfAborted();
  if (existsSync(logFile)) await rename(logFile, previousLog(logFile));
  const failed = new AbortController();
  try {
    const { ended } = await spawnDevServer(home, port);
    void ended.then((how) => failed.abort(new Error(how)));
    const signal = AbortSignal.any([failed.signal, stop]);
    await waitUntilReady({ port, namespace, timeoutMs: START_MS, signal });
    // Another program's server may have responded, on a port that this one could not get.
    failed.signal.throwIfAborted();
    await checkListener(port);
    await rm(setupMarker(home), { force: true });
    return { port, ended };
  } catch (cause) {
    await endDevServer(databaseFile, 0);
    stop.throwIfAborted();
    const reason: unknown = failed.signal.aborted ? failed.signal.reason : cause;
    const lines = await lastLines(logFile);
    const message = `Temporal's server did not start: ${errorMessage(reason)}${lines}\nIts log is ${logFile}`;
    throw failed.signal.aborted ? new ServerEndedError(message, { cause }) : new ProvisionError(message, { cause });
  }
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
  if (existsSync(databaseFile)) await checkUnused(databaseFile);
  if (existsSync(setupMarker(home))) {
    await Promise.all(['', '-wal', '-shm'].map((suffix) => rm(`${databaseFile}${suffix}`, { force: true })));
  }
  if (!existsSync(databaseFile)) await writeFile(setupMarker(home), '');
}

/**
 * SQLite grants this lock only if no other process has the database open. So a server whose record is lost gets no second
 * one beside it. A backup of the file holds it for some time.
 * @throws ProvisionError
 */
async function checkUnused(databaseFile: string): Promise<void> {
  for (const deadline = Date.now() + BACKUP_MS; ; await sleep(BACKUP_MS / 50)) {
    const cause = lockProblem(databaseFile);
    // Temporal reports other problems of the file.
    if (!isBusy(cause)) return;
    if (Date.now() < deadline) continue;
    throw new ProvisionError(
      `a Temporal server that this Everturn does not know, or a backup, uses ${databaseFile}: end that process, which ` +
        `"fuser ${databaseFile}" or "lsof ${databaseFile}" names`,
      { cause },
    );
  }
}

/** Undefined if the database could be locked. */
function lockProblem(databaseFile: string): unknown {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(databaseFile);
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; ROLLBACK');
    return undefined;
  } catch (error) {
    return error;
  } finally {
    database?.close();
  }
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
async function endOf(server: StartedProcess): Promise<string> {
  while (await isRunning(server)) await sleep(WATCH_MS, undefined, { ref: false });
  return 'its process has ended';
}
