import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Connection } from '@temporalio/client';
import { msToTs } from '../../src/temporal/sdk-internals.ts';
import type { Logger } from 'pino';
import { isAlreadyExists } from '../../src/temporal/errors.ts';
import { ProvisionError } from '../../src/lib/errors.ts';
import { RETENTION } from '../../src/temporal-server/provision.ts';
import { waitUntilReady } from '../../src/temporal-server/wait-until-ready.ts';
import { postgresAccess } from './postgres-access.ts';
import { temporalPrograms } from './programs.ts';
import { prepareSchemas } from './schemas.ts';
import { dynamicConfig, serverConfig } from './server-config.ts';

export interface TemporalOnPostgresOptions {
  /** The URL of a user who may create databases or owns `temporal` and `temporal_visibility`. */
  postgresUrl: string;
  /** The folder of the server's configuration, which contains the password. */
  folder: string;
  /** The cache of Temporal's programs. */
  cacheDir: string;
  log: Logger;
  /** The address that clients connect to; default 127.0.0.1. */
  host?: string;
  /** Default 7233. Other parts use ports near it and 300 below; the server's tables cannot store ports above 32767. */
  port?: number;
  /** Default `everturn`. */
  namespace?: string;
  /** Default 512. Larger clusters need more. It cannot be changed later. */
  historyShards?: number;
  /** The server's log output; default `inherit`. */
  output?: 'inherit' | 'ignore';
}

export interface TemporalOnPostgres {
  /** For clients on this machine. */
  address: string;
  namespace: string;
  /** Rejects if the server ends by itself; resolves when it is stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

const START_MS = 60_000;
const STOP_GRACE_MS = 15_000;

/**
 * Runs a Temporal server as in production: all services in one process, on PostgreSQL. Creates the databases, schemas
 * and namespace if they do not exist, and updates schemas of an older version.
 *
 * @throws ProvisionError
 */
export async function startTemporalOnPostgres(options: TemporalOnPostgresOptions): Promise<TemporalOnPostgres> {
  const { postgresUrl, folder, cacheDir, log, namespace = 'everturn', port = 7233 } = options;
  const { host = '127.0.0.1', historyShards = 512, output = 'inherit' } = options;
  const access = postgresAccess(postgresUrl);
  const { server, sqlTool } = await temporalPrograms({ cacheDir, env: process.env, log });
  await prepareSchemas({ postgresUrl, access, sqlTool });

  const configFolder = path.resolve(folder, 'config');
  await mkdir(configFolder, { recursive: true, mode: 0o700 });
  const dynamicConfigFile = path.join(configFolder, 'dynamic.yaml');
  const config = serverConfig({ access, host, port, historyShards, dynamicConfigFile });
  // JSON is also YAML.
  await writeFile(dynamicConfigFile, JSON.stringify(dynamicConfig()));
  await writeFile(path.join(configFolder, 'prod.yaml'), JSON.stringify(config), { mode: 0o600 });

  const settings = ['--root', path.resolve(folder), '--config', 'config', '--env', 'prod', '--allow-no-auth'];
  const running = run(server, settings, output);
  const address = `127.0.0.1:${port}`;
  const starting = new AbortController();
  try {
    const signal = AbortSignal.any([starting.signal, AbortSignal.timeout(START_MS)]);
    const ready = waitUntilReady({ port, namespace: 'temporal-system', timeoutMs: START_MS, signal });
    await Promise.race([ready, running.finished]);
    await registerNamespace(address, namespace);
  } catch (error) {
    starting.abort();
    await running.stop();
    throw error;
  }
  return { address, namespace, ...running };
}

function run(
  server: string,
  settings: string[],
  output: 'inherit' | 'ignore',
): Pick<TemporalOnPostgres, 'finished' | 'stop'> {
  const child = spawn(server, [...settings, 'start'], { stdio: ['ignore', output, output] });
  let isStopping = false;
  const finished = once(child, 'exit').then(([code, signal]: (number | string | null)[]) => {
    if (isStopping) return;
    throw new ProvisionError(`Temporal's server ended with ${signal ?? `exit code ${code}`}; its log says why`);
  });
  finished.catch(() => undefined); // handled by the callers that await it
  return {
    finished,
    stop: async () => {
      isStopping = true;
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_GRACE_MS);
      await finished.catch(() => undefined);
      clearTimeout(timer);
    },
  };
}

async function registerNamespace(address: string, namespace: string): Promise<void> {
  const connection = await Connection.connect({ address });
  try {
    await connection.workflowService.registerNamespace({
      namespace,
      workflowExecutionRetentionPeriod: msToTs(RETENTION),
    });
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
  } finally {
    await connection.close();
  }
}
