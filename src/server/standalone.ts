import type { Logger } from 'pino';
import { readAgentFiles, registerAgents } from './agent-files.ts';
import { listenForApi, startApi } from './api.ts';
import { createOperationsApp } from '../api/app.ts';
import { requireKeysIfExposed, warnOfClientKey } from './require-keys.ts';
import type { Config } from '../config.ts';
import { listenHttp, type HttpServer } from './http-server.ts';
import { modelAccess } from '../models/open-providers.ts';
import { Readiness } from './readiness.ts';
import { openServices, type Services } from './services.ts';
import type { RunningAllInOne } from './all-in-one.ts';
import type { Tracing } from '../telemetry/tracing.ts';
import { createScrape } from './operations.ts';
import { warnIfSlow, checkPollers } from '../temporal/task-queue.ts';
import { provisionTemporal, type ProvisionedTemporal } from '../temporal-server/provision.ts';
import { workflowBundle } from '../temporal/workflow-bundle.ts';
import { loadMcpRegistry } from '../mcp/registry.ts';
import { startWorker } from './worker.ts';

interface StandaloneOptions {
  config: Config;
  log: Logger;
  tracing?: Tracing | undefined;
}

/** One of several processes that together are one Everturn. */
export interface RunningProcess {
  /** A description of the model provider, for display. */
  model: string;
  /** Rejects if the process fails; resolves when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

export interface RunningStandaloneWorker extends RunningProcess {
  /** The URL of its health and metrics, if they are served. */
  healthUrl: string | undefined;
}

/** Starts an API whose workers run in other processes. */
export async function startStandaloneApi({ config, log, tracing }: StandaloneOptions): Promise<RunningAllInOne> {
  await using cleanup = new AsyncDisposableStack();
  const ports = await listenForApi(config, log, cleanup);
  await requireKeysIfExposed(config, log);
  const agents = await readAgentFiles(config.agentsDir);
  const { services, model } = await openStandalone({ config, log, tracing }, cleanup);
  warnOfClientKey(services);
  await registerAgents(services, agents);
  const { client, keyring } = services;
  const stopApi = startApi(services, ports, {
    dependency: 'worker',
    problem: 'no worker is running',
    run: () => checkPollers(client, config.temporal.taskQueue),
  });
  const stopped = Promise.withResolvers<void>();
  cleanup.defer(() => stopped.resolve());
  cleanup.defer(stopApi);
  const names = keyring.isKeyless ? undefined : await keyring.names();
  const running = cleanup.move();
  return { url: ports.api.url, model, names, finished: stopped.promise, stop: () => running.disposeAsync() };
}

/** Starts a worker, and serves its health and metrics if a port is configured. */
export async function startStandaloneWorker({
  config,
  log,
  tracing,
}: StandaloneOptions): Promise<RunningStandaloneWorker> {
  await using cleanup = new AsyncDisposableStack();
  const health = await listenForHealth(config, cleanup);
  const bundling = workflowBundle(config.cacheDir, {
    encodesFailures: config.encryptionKeys.length > 0,
    isVersioned: config.temporal.buildId !== undefined,
  });
  bundling.catch(() => undefined); // awaited below, unless another step fails first
  const { services, temporal, model } = await openStandalone({ config, log, tracing }, cleanup);
  const worker = await startWorker(services, { temporal, workflowBundle: await bundling });
  cleanup.defer(() => worker.stop());
  const readiness = new Readiness(services, worker.check);
  const scrape = createScrape({ ...services, readiness });
  health?.serve(createOperationsApp({ ...services, readiness, scrape }));
  void warnIfSlow({ ...services, taskQueue: config.temporal.taskQueue });
  const running = cleanup.move();
  return { healthUrl: health?.url, model, finished: worker.finished, stop: () => running.disposeAsync() };
}

/** Opens what a standalone API and a standalone worker have in common. */
async function openStandalone(
  { config, log, tracing }: StandaloneOptions,
  cleanup: AsyncDisposableStack,
): Promise<{ services: Services; temporal: ProvisionedTemporal; model: string }> {
  const model = await modelAccess(config);
  if (!model) throw new Error('no model provider is configured');
  const registry = await loadMcpRegistry(config.mcpServersFile);
  const { dataDir, cacheDir } = config;
  const { external, namespace, installers } = config.temporal;
  const temporal = await provisionTemporal({ dataDir, cacheDir, external, namespace, installers, log });
  cleanup.defer(() => temporal.stop());
  const services = await openServices({ config, log, temporal, registry, model, tracing });
  cleanup.defer(() => services.close());
  return { services, temporal, model: model.name };
}

/** Takes the port of a worker's health and metrics, if one is configured. */
async function listenForHealth(
  { host, workerPort: port }: Config,
  cleanup: AsyncDisposableStack,
): Promise<HttpServer | undefined> {
  if (port === undefined) return undefined;
  const server = await listenHttp({ host, port, setting: 'EVERTURN_WORKER_PORT' });
  cleanup.defer(() => server.stop());
  return server;
}
