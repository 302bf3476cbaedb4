import { createServer } from 'node:http';
import { createApp } from './api/app.ts';
import { answerProtocolErrors } from './api/protocol-errors.ts';
import { SessionCommands } from './api/session-commands.ts';
import { ConfigError } from './config.ts';
import { TurnTails } from './live/turn-tails.ts';
import type { Services } from './services.ts';

export interface RunningApi {
  url: string;
  /** Refuses new requests and cuts off streams; their readers come back with their cursors. */
  stop: () => Promise<void>;
}

const READINESS_TIMEOUT_MS = 2_000;

/** Starts the HTTP API. `checkWorker` says whether this process's worker runs, if it has one. */
export async function startApi(services: Services, checkWorker: () => boolean): Promise<RunningApi> {
  const { config, client, logs, bus, log } = services;
  const app = createApp({
    ...services,
    tails: new TurnTails({ logs, bus, log }),
    commands: new SessionCommands({ client, taskQueue: config.temporal.taskQueue }),
    checkReadiness: () => checkReadiness(services, checkWorker),
  });
  // A request without Host is refused by the app, in the form of its other errors.
  const server = createServer({ requireHostHeader: false }, app);
  answerProtocolErrors(server);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, config)));
    server.listen(config.port, config.host, resolve);
  });
  const address = server.address();
  const port = typeof address === 'object' && address ? address.port : config.port;
  const host = config.host.includes(':') ? `[${config.host}]` : config.host;
  return {
    url: `http://${host}:${port}`,
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

async function checkReadiness(
  { catalog, blobs, client, config }: Services,
  checkWorker: () => boolean,
): Promise<string[]> {
  const { connection, options } = client;
  const checks: [string, () => Promise<unknown>][] = [
    ['the catalog can not be written', () => catalog.check(new Date().toISOString())],
    ['the blob store can not be written', () => blobs.check()],
    [
      'Temporal can not be reached',
      () =>
        connection.withDeadline(Date.now() + READINESS_TIMEOUT_MS, () =>
          connection.workflowService.describeNamespace({ namespace: options.namespace }),
        ),
    ],
  ];
  const problems = await Promise.all(
    checks.map(async ([problem, check]) => {
      try {
        await check();
        return [];
      } catch (error) {
        return [`${problem}: ${error instanceof Error ? error.message : String(error)}`];
      }
    }),
  );
  const worker = checkWorker() ? [] : [`no worker runs on the task queue ${config.temporal.taskQueue} here`];
  return [...problems.flat(), ...worker];
}

function listenError(error: NodeJS.ErrnoException, { host, port }: { host: string; port: number }): Error {
  const reasons: Record<string, string> = {
    EADDRINUSE: 'something else listens there: choose another EVERTURN_PORT',
    EACCES: 'it needs more rights: choose an EVERTURN_PORT above 1023',
    EADDRNOTAVAIL: 'this machine does not have that address: set EVERTURN_HOST',
  };
  const reason = error.code && reasons[error.code];
  return reason ? new ConfigError(`can't listen on ${host}:${port}, ${reason}`, { cause: error }) : error;
}
