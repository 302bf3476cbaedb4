import { createApp } from './api/app.ts';
import { SessionCommands } from './api/session-commands.ts';
import { serveHttp, type HttpServer } from './http-server.ts';
import { TurnTails } from './live/turn-tails.ts';
import { problemsOf, type Check } from './readiness.ts';
import type { Services } from './services.ts';

/** Starts the HTTP API. `workerCheck` fails if nobody does the work. */
export async function startApi(services: Services, workerCheck: Check): Promise<HttpServer> {
  const { config, client, logs, bus, log } = services;
  const app = createApp({
    ...services,
    tails: new TurnTails({ logs, bus, log }),
    commands: new SessionCommands({ client, taskQueue: config.temporal.taskQueue }),
    checkReadiness: () => problemsOf(services, workerCheck),
  });
  return serveHttp(app, { host: config.host, port: config.port, setting: 'EVERTURN_PORT' });
}
