import path from 'node:path';
import { realpath } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { SqliteSync } from '../catalog/sqlite.ts';
import { NEVER_ABORTED, onAbort } from '../lib/abort.ts';
import { backoffMs } from '../lib/backoff.ts';
import { endDevServer, settingsArguments, type ServerHome } from './dev-server.ts';
import type { DynamicConfig } from './dynamic-config.ts';
import { makeFolder } from '../lib/make-folder.ts';
import { freePort } from '../lib/processes.ts';
import { adoptServer, launchServer, ServerEndedError, type RunningServer } from './launch-server.ts';
import { errorMessage } from '../lib/errors.ts';

export interface EmbeddedTemporalOptions {
  /** The server's files are in its subfolder `temporal`. */
  dataDir: string;
  /** The Temporal CLI. */
  binary: string;
  namespace: string;
  /** Default `normal`. */
  sqliteSync?: SqliteSync;
  /** In addition to the server's standard settings. */
  dynamicConfig?: DynamicConfig;
  /** Gives up the start of the server. */
  signal?: AbortSignal;
  log: Logger;
}

export interface EmbeddedTemporal {
  /** Stays the same until `stop`, also when the server's process is restarted. */
  address: string;
  /** Whether the server was already running, left by an Everturn that was killed. */
  adopted: boolean;
  stop: () => Promise<void>;
}

const START_ATTEMPTS = 3;
/** An idle server takes 1.4 s to stop. */
const STOP_GRACE_MS = 5000;
const RESTART_BACKOFF = { first: 100, max: 5000 };
/** A server that ends after it has run for this long is restarted without a pause. */
const STEADY_MS = 30_000;

/**
 * Runs a Temporal server for a data folder and restarts it if it ends. A server that an Everturn left running when it
 * was killed is adopted. The caller holds the lock of the data folder.
 *
 * @throws ProvisionError if the server does not start; the reason of `signal` if that is aborted first
 */
export async function startEmbeddedTemporal(options: EmbeddedTemporalOptions): Promise<EmbeddedTemporal> {
  const { dataDir, binary, namespace, log } = options;
  const { sqliteSync = 'normal', dynamicConfig = {}, signal = NEVER_ABORTED } = options;
  await makeFolder(path.join(dataDir, 'temporal'), 'EVERTURN_DATA');
  const databaseFile = await databaseFileIn(dataDir);
  const settings = settingsArguments({ databaseFile, namespace, sqliteSync, dynamicConfig });
  const logFile = path.join(path.dirname(databaseFile), 'server.log');
  const home = { databaseFile, logFile, binary, namespace, settings };
  const adopted = await adoptServer(home, log);
  const server = adopted ?? (await launchOnFreePort(home, signal));

  const stopping = new AbortController();
  const supervision = supervise(home, server, { stop: stopping.signal, log });
  const stop = async (): Promise<void> => {
    stopping.abort();
    await supervision;
    await endEmbeddedTemporal(dataDir);
  };
  let stopped: Promise<void> | undefined;
  return {
    address: `127.0.0.1:${server.port}`,
    adopted: adopted !== undefined,
    stop: () => (stopped ??= stop()),
  };
}

/**
 * Ends the Temporal server of a data folder, also one that an Everturn left running when it was killed. The caller holds
 * the lock of the data folder.
 */
export async function endEmbeddedTemporal(dataDir: string): Promise<void> {
  await endDevServer(await databaseFileIn(dataDir), STOP_GRACE_MS);
}

/** The canonical path of the database, independent of symbolic links: a server's record and settings have it. */
export async function databaseFileIn(dataDir: string): Promise<string> {
  return path.join(await realpath(dataDir), 'temporal', 'temporal.db');
}

async function launchOnFreePort(home: ServerHome, signal: AbortSignal): Promise<RunningServer> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await launchServer(home, await freePort(), signal);
    } catch (error) {
      // Another process may have taken the port in the meantime.
      if (!(error instanceof ServerEndedError) || attempt === START_ATTEMPTS) throw error;
    }
  }
}

/** Restarts the server whenever it ends, on the same port, because clients and workers hold connections to it. */
async function supervise(
  home: ServerHome,
  server: RunningServer,
  { stop, log }: { stop: AbortSignal; log: Logger },
): Promise<void> {
  const stopped = new Promise<undefined>((resolve) => {
    onAbort(stop, () => resolve(undefined));
  });
  let running: RunningServer | undefined = server;
  let readyAt = Date.now();
  let failures = 0;
  while (!stop.aborted) {
    if (running) {
      const how = await Promise.race([running.ended, stopped]);
      if (how === undefined) return;
      log.warn(`Temporal's server has ended (${how}) and is restarted; its log is ${home.logFile}`);
      if (Date.now() - readyAt >= STEADY_MS) failures = 0;
    }
    if (failures > 0)
      await Promise.race([sleep(backoffMs(failures - 1, RESTART_BACKOFF), undefined, { ref: false }), stopped]);
    if (stop.aborted) return;
    failures += 1;
    try {
      running = await launchServer(home, server.port, stop);
      readyAt = Date.now();
      log.info(`Temporal's server is running again`);
    } catch (error) {
      running = undefined;
      if (!stop.aborted) log.warn(errorMessage(error));
    }
  }
}
