import type { Logger } from 'pino';
import { createApp, createOperationsApp } from '../api/app.ts';
import { ConnectionLimit } from '../api/http/connection-limit.ts';
import { StreamLimits } from '../api/http/stream-limits.ts';
import { TokenIssuer } from '../auth/token-verifier.ts';
import type { Config } from '../config.ts';
import { listenHttp, type HttpServer } from './http-server.ts';
import { ActionFeed } from '../features/inbox/action-feed.ts';
import { Readiness, type Check } from './readiness.ts';
import { createScrape } from './operations.ts';
import type { Services } from './services.ts';

/** The ports of an API. */
interface ApiPorts {
  api: HttpServer;
  /** Undefined if it is not configured. */
  metrics: HttpServer | undefined;
  connectionLimit: ConnectionLimit;
}

/**
 * Takes the ports of an API; `cleanup` releases them.
 * @throws ConfigError that names the port that cannot be listened on
 */
export async function listenForApi(
  { host, port, metricsPort, trustedProxies }: Config,
  log: Logger,
  cleanup: AsyncDisposableStack,
): Promise<ApiPorts> {
  const connectionLimit = new ConnectionLimit({ config: { trustedProxies }, log });
  const api = await listenHttp({ host, port, setting: 'EVERTURN_PORT', connectionLimit, log });
  cleanup.defer(() => api.stop());
  if (metricsPort === undefined) return { api, metrics: undefined, connectionLimit };
  const metrics = await listenHttp({ host, port: metricsPort, setting: 'EVERTURN_METRICS_PORT' });
  cleanup.defer(() => metrics.stop());
  return { api, metrics, connectionLimit };
}

/** Starts the HTTP API on its ports, and returns what stops it. `workerCheck` fails if no worker runs. */
export function startApi(
  services: Services,
  { api, metrics, connectionLimit }: ApiPorts,
  workerCheck: Check,
): () => Promise<void> {
  const { config, catalog, limits, bus, log, sessionQueue } = services;
  const readiness = new Readiness(services, workerCheck);
  const scrape = createScrape({ ...services, readiness });
  const app = createApp({
    ...services,
    connectionLimit,
    scrape,
    issuer: config.oidc && new TokenIssuer({ oidc: config.oidc, log }),
    streamLimits: new StreamLimits(limits),
    actionFeed: new ActionFeed({ catalog, bus, log }),
    sessionQueue,
    readiness,
  });
  api.serve(app);
  metrics?.serve(createOperationsApp({ ...services, readiness, scrape }));
  // For the sessions that another process has put into the queue, and whose slots are released with time.
  sessionQueue.wake();
  return async () => void (await Promise.all([api.stop(), metrics?.stop(), sessionQueue.stop()]));
}
