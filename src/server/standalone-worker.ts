import { createOperationsApp } from '../api/app.ts';
import type { RunningAllInOne } from './all-in-one.ts';
import { listenForHealth } from './http-server.ts';
import { Readiness } from './readiness.ts';
import { refuseOldTurns } from './old-turns.ts';
import { createScrape } from './operations.ts';
import { openStandalone, type StandaloneOptions } from './standalone.ts';
import { workflowBundle } from '../temporal/workflow-bundle.ts';
import { startWorker } from './worker.ts';

/** A worker whose APIs run in other processes. */
interface RunningStandaloneWorker extends Pick<RunningAllInOne, 'model' | 'finished' | 'stop'> {
  /** The URL of its health and metrics, if they are served. */
  healthUrl: string | undefined;
}

/** Starts a worker, and serves its health and metrics if a port is configured. */
export async function startStandaloneWorker({
  config,
  log,
  tracing,
  endOldTurns,
}: StandaloneOptions & { endOldTurns?: boolean | undefined }): Promise<RunningStandaloneWorker> {
  await using cleanup = new AsyncDisposableStack();
  const health = await listenForHealth({ ...config, port: config.workerPort }, 'EVERTURN_WORKER_PORT', cleanup);
  const bundling = workflowBundle(config.cacheDir, {
    encodesFailures: config.encryptionKeys.length > 0,
    isVersioned: config.temporal.buildId !== undefined,
  });
  bundling.catch(() => undefined); // awaited below, unless another step fails first
  const { services, temporal, model } = await openStandalone({ config, log, tracing, hasWorker: true }, cleanup);
  await refuseOldTurns(services, { endOldTurns });
  const worker = await startWorker(services, { temporal, workflowBundle: await bundling });
  cleanup.defer(() => worker.stop());
  const readiness = new Readiness(services, worker.check);
  const scrape = createScrape({ ...services, readiness });
  health?.serve(createOperationsApp({ ...services, readiness, scrape }));
  const running = cleanup.move();
  return { healthUrl: health?.url, model, finished: worker.finished, stop: () => running.disposeAsync() };
}
