import { createApp, createOperationsApp } from '../api/app.ts';
import { ConnectionLimit } from '../api/http/connection-limit.ts';
import { StreamLimits } from '../api/http/stream-limits.ts';
import { TokenIssuer } from '../auth/token-verifier.ts';
import { serveHttp, type HttpServer } from './http-server.ts';
import { ActionFeed } from '../live/action-feed.ts';
import { Readiness, type Check } from './readiness.ts';
import { createScrape } from './operations.ts';
import type { Services } from './services.ts';

/** Starts the HTTP API. `workerCheck` fails if no worker runs. */
export async function startApi(services: Services, workerCheck: Check): Promise<HttpServer> {
  const { config, catalog, limits, bus, log, sessionQueue } = services;
  const readiness = new Readiness(services, workerCheck);
  const scrape = createScrape({ ...services, readiness });
  const connectionLimit = new ConnectionLimit({ config, log });
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
  const { host, port, metricsPort } = config;
  const listening = await serveHttp(app, { host, port, setting: 'EVERTURN_PORT', connectionLimit });
  // For the sessions that another process has put into the queue, and whose slots are released with time.
  sessionQueue.wake();
  const api = {
    url: listening.url,
    stop: async () => void (await Promise.all([listening.stop(), sessionQueue.stop()])),
  };
  if (metricsPort === undefined) return api;
  const operations = createOperationsApp({ ...services, readiness, scrape });
  try {
    const { stop } = await serveHttp(operations, { host, port: metricsPort, setting: 'EVERTURN_METRICS_PORT' });
    return { url: api.url, stop: async () => void (await Promise.all([api.stop(), stop()])) };
  } catch (error) {
    await api.stop();
    throw error;
  }
}
