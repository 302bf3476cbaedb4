import path from 'node:path';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Logger } from 'pino';
import { startTemporalOnPostgres } from '../deploy/temporal/start.ts';
import { loadConfig } from '../src/config.ts';
import { freePort } from '../src/lib/processes.ts';
import { provisionTemporal, type ProvisionedTemporal } from '../src/temporal-server/provision.ts';
import { Postgres } from '../test/support/postgres.ts';
import { TestRedis } from '../test/support/redis.ts';
import { createDatabase } from '../test/support/sql.ts';
import { freeTemporalPort } from '../test/support/temporal-ports.ts';

/** Everturn in its own processes, as in production, on a Temporal server that the baseline's workflows also use. */
export interface Deployment {
  url: string;
  temporal: Pick<ProvisionedTemporal, 'connectionOptions' | 'namespace'>;
  /** Resident memory of the process that readers are connected to, in megabytes. */
  memoryMb: () => Promise<number>;
}

interface DeploymentOptions {
  /** All files are written here. */
  folder: string;
  env: Record<string, string>;
  log: Logger;
  /** Functions that undo the start are added here. */
  cleanup: (() => Promise<unknown>)[];
}

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

/** One process with the embedded Temporal. */
export async function startAllInOne(options: DeploymentOptions): Promise<Deployment> {
  return startOn(await startEmbedded(options), 'all-in-one', options);
}

/** Two processes on one Temporal: one that encrypts nothing, and one that encrypts what it stores. */
export async function startPair(options: DeploymentOptions): Promise<{ plain: Deployment; encrypted: Deployment }> {
  const temporal = await startEmbedded(options);
  const keys = { EVERTURN_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}` };
  return {
    plain: await startOn(temporal, 'plain', options),
    encrypted: await startOn(temporal, 'encrypted', { ...options, env: { ...options.env, ...keys } }),
  };
}

async function startEmbedded({ folder, log, cleanup }: DeploymentOptions): Promise<ProvisionedTemporal> {
  const { cacheDir, temporal: settings } = loadConfig({});
  const temporal = await provisionTemporal({ dataDir: folder, cacheDir, log, ...settings });
  cleanup.push(() => temporal.stop());
  return temporal;
}

/** A process with its own folder and task queue. */
async function startOn(
  temporal: ProvisionedTemporal,
  name: string,
  { folder, env, cleanup }: DeploymentOptions,
): Promise<Deployment> {
  const dataDir = path.join(folder, name);
  await mkdir(dataDir);
  const { connectionOptions, namespace } = temporal;
  const port = String(await freePort());
  const server = await startProcess('start', 'Everturn listens', {
    ...env,
    EVERTURN_DATA: dataDir,
    EVERTURN_PORT: port,
    EVERTURN_TASK_QUEUE: name,
    TEMPORAL_ADDRESS: connectionOptions.address ?? '',
    TEMPORAL_NAMESPACE: namespace,
    // The setting of an embedded Temporal, which this one is.
    EVERTURN_SQLITE_SYNC: 'normal',
  });
  cleanup.push(() => stop(server));
  return { url: `http://127.0.0.1:${port}`, temporal, memoryMb: () => memoryMb(server) };
}

/** An API process and a worker, with catalog and Temporal on PostgreSQL, and Redis. */
export async function startStandalone({ folder, env, log, cleanup }: DeploymentOptions): Promise<Deployment> {
  const dataDir = path.join(folder, 'standalone');
  await mkdir(dataDir);
  const postgres = await Postgres.start({ isDurable: true });
  cleanup.push(() => postgres.stop());
  const redis = await TestRedis.start();
  cleanup.push(() => redis.down());
  const temporal = await startTemporalOnPostgres({
    postgresUrl: postgres.url,
    folder: path.join(dataDir, 'temporal'),
    cacheDir: loadConfig({}).cacheDir,
    log,
    port: await freeTemporalPort(),
    output: 'ignore',
  });
  cleanup.push(() => temporal.stop());
  const { address, namespace } = temporal;
  const port = String(await freePort());
  const settings = {
    ...env,
    EVERTURN_DATA: dataDir,
    EVERTURN_PORT: port,
    TEMPORAL_ADDRESS: address,
    TEMPORAL_NAMESPACE: namespace,
    DATABASE_URL: await createDatabase(postgres.url),
    REDIS_URL: redis.url,
  };
  const worker = await startProcess('worker', 'polls the task queue', settings);
  cleanup.push(() => stop(worker));
  const api = await startProcess('api', 'API listens', settings);
  cleanup.push(() => stop(api));
  const connectionOptions = { address };
  return { url: `http://127.0.0.1:${port}`, temporal: { connectionOptions, namespace }, memoryMb: () => memoryMb(api) };
}

/** Resolves when the process has printed `ready`. */
async function startProcess(command: string, ready: string, env: Record<string, string>): Promise<ChildProcess> {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(process.execPath, [MAIN, command], {
    env: { PATH, HOME, LOG_LEVEL: 'warn', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const listening = Promise.withResolvers<void>();
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    if (output.includes(ready)) listening.resolve();
  });
  child.once('exit', (code) => listening.reject(new Error(`everturn ${command} exited with ${code}:\n${output}`)));
  await listening.promise;
  return child;
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill();
  await exited;
}

async function memoryMb({ pid }: ChildProcess): Promise<number> {
  const { stdout } = await promisify(execFile)('ps', ['-o', 'rss=', '-p', String(pid)]);
  return Number(stdout) / 1024;
}
