import type { Logger } from 'pino';
import { readAgentFiles, registerAgents } from './agent-files.ts';
import { startApi } from './api.ts';
import { createOperationsApp } from '../api/app.ts';
import { requireKeysIfExposed } from './require-keys.ts';
import type { Config } from '../config.ts';
import { serveHttp } from './http-server.ts';
import { modelAccess } from '../models/providers.ts';
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

interface PartOptions {
  config: Config;
  log: Logger;
  tracing?: Tracing | undefined;
}

/** One of several processes that make up an Everturn. */
export interface RunningProcess {
  /** Who answers for the models: a name for people. */
  model: string;
  /** Rejects if it can't go on; settles when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

export interface RunningWorkerPart extends RunningProcess {
  /** Where it answers for its health, if it does. */
  healthUrl: string | undefined;
}

/** Starts an API whose workers are processes of their own. */
export async function startStandaloneApi({ config, log, tracing }: PartOptions): Promise<RunningAllInOne> {
  await using cleanup = new AsyncDisposableStack();
  await requireKeysIfExposed(config, log);
  const agents = await readAgentFiles(config.agentsDir);
  const { services, model } = await openStandalone({ config, log, tracing }, cleanup);
  await registerAgents(services, agents);
  const { client, keyring } = services;
  const api = await startApi(services, {
    dependency: 'worker',
    problem: 'no worker is there',
    run: () => checkPollers(client, config.temporal.taskQueue),
  });
  const stopped = Promise.withResolvers<void>();
  cleanup.defer(() => stopped.resolve());
  cleanup.defer(() => api.stop());
  const names = keyring.isKeyless ? undefined : await keyring.names();
  const running = cleanup.move();
  return { url: api.url, model, names, finished: stopped.promise, stop: () => running.disposeAsync() };
}

/** Starts a worker beside others; if it is told a port, it answers there for its health. */
export async function startStandaloneWorker({ config, log, tracing }: PartOptions): Promise<RunningWorkerPart> {
  await using cleanup = new AsyncDisposableStack();
  const bundling = workflowBundle(config.cacheDir, { hidesFailures: config.encryptionKeys.length > 0 });
  bundling.catch(() => undefined); // awaited below, unless something else fails first
  const { services, temporal, model } = await openStandalone({ config, log, tracing }, cleanup);
  const worker = await startWorker(services, { temporal, workflowBundle: await bundling });
  cleanup.defer(() => worker.stop());
  const healthUrl = await serveHealth(services, new Readiness(services, worker.check), cleanup);
  void warnIfSlow({ ...services, taskQueue: config.temporal.taskQueue });
  const running = cleanup.move();
  return { healthUrl, model, finished: worker.finished, stop: () => running.disposeAsync() };
}

/** What both are made of. */
async function openStandalone(
  { config, log, tracing }: PartOptions,
  cleanup: AsyncDisposableStack,
): Promise<{ services: Services; temporal: ProvisionedTemporal; model: string }> {
  const model = modelAccess(config);
  if (!model) throw new Error('a part of Everturn was configured without models');
  const registry = await loadMcpRegistry(config.mcpServersFile);
  const { dataDir, cacheDir } = config;
  const { external, namespace } = config.temporal;
  const temporal = await provisionTemporal({ dataDir, cacheDir, external, namespace, log });
  cleanup.defer(() => temporal.stop());
  const services = await openServices({ config, log, temporal, registry, openai: model.openai, tracing });
  cleanup.defer(() => services.close());
  return { services, temporal, model: model.name };
}

async function serveHealth(
  services: Services,
  readiness: Readiness,
  cleanup: AsyncDisposableStack,
): Promise<string | undefined> {
  const { host, workerPort: port } = services.config;
  if (port === undefined) return undefined;
  const scrape = createScrape({ ...services, readiness });
  const app = createOperationsApp({ ...services, readiness, scrape });
  const server = await serveHttp(app, { host, port, setting: 'EVERTURN_WORKER_PORT' });
  cleanup.defer(() => server.stop());
  return server.url;
}
