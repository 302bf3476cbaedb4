import { createApp, createOperationsApp } from '../api/app.ts';
import { ConnectionLimit } from '../api/http/connection-limit.ts';
import { limitsInForce } from '../engine/limits.ts';
import { SessionCommands } from '../engine/session-commands.ts';
import { SessionQueue } from '../engine/session-queue.ts';
import { StreamLimits } from '../api/http/stream-limits.ts';
import { TurnSpeculator } from '../speculation/turn-speculation.ts';
import { TurnLimits } from '../engine/turn-limits.ts';
import { TokenIssuer } from '../auth/token-verifier.ts';
import { serveHttp, type HttpServer } from './http-server.ts';
import { SessionWatches } from '../live/session-watches.ts';
import { ActionFeed } from '../live/action-feed.ts';
import { TurnTailPool } from '../live/turn-tail.ts';
import { Readiness, type Check } from './readiness.ts';
import { createScrape } from './operations.ts';
import type { Services } from './services.ts';

/** Starts the HTTP API. `workerCheck` fails if no worker runs. */
export async function startApi(services: Services, workerCheck: Check): Promise<HttpServer> {
  const { config, catalog, keyring, client, logs, bus, log } = services;
  const limits = () => limitsInForce(config.limits, keyring);
  const readiness = new Readiness(services, workerCheck);
  const scrape = createScrape({ ...services, readiness });
  const commands = new SessionCommands({ client, taskQueue: config.temporal.taskQueue, log });
  const sessionQueue = new SessionQueue({ ...services, commands });
  const connectionLimit = new ConnectionLimit({ config, log });
  const app = createApp({
    ...services,
    connectionLimit,
    scrape,
    issuer: config.oidc && new TokenIssuer({ oidc: config.oidc, log }),
    limits,
    turnLimits: new TurnLimits({ catalog, config, limits }),
    streamLimits: new StreamLimits(limits),
    speculator: new TurnSpeculator(services.speculativeCalls),
    actionFeed: new ActionFeed({ catalog, bus, log }),
    tails: new TurnTailPool({ logs, bus, log }),
    sessionWatches: new SessionWatches({ catalog, bus, log }),
    commands,
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
