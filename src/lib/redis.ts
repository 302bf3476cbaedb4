import { once } from 'node:events';
import type { createClient } from '@redis/client';
import type { Logger } from 'pino';
import { backoffMs } from './backoff.ts';

/**
 * Two connections to one Redis. They reconnect without a limit of attempts; while disconnected, commands fail
 * immediately. If Redis hangs, commands fail after some seconds: callers that cannot wait that long set their own time
 * limit.
 */
export interface Redis {
  /** For all commands except subscriptions. */
  commands: RedisClient;
  /** Redis requires a separate connection for subscriptions. */
  subscriptions: RedisClient;
  close: () => void;
}

/** The prefix of all names of one Everturn, because several may share a Redis as they may share a Temporal. */
export function redisPrefix({ namespace, taskQueue }: { namespace: string; taskQueue: string }): string {
  return `everturn:${namespace}:${taskQueue}:`;
}

export type RedisClient = ReturnType<typeof createClient>;

const CONNECT_MS = 5_000;
const MAX_RECONNECT_MS = 1_000;
/** Without a response for this long, Redis hangs or the connection was lost without being closed. */
const PING_MS = 5_000;
/** Commands that are queued or await their response. */
const MAX_COMMANDS = 10_000;

/** Connects. Failed attempts are retried in the background and logged once. */
export async function openRedis({ url, log }: { url: string; log: Logger }): Promise<Redis> {
  // Loaded only if it is used: its 480 modules take 0.1 s of a start.
  const { createClient: create } = await import('@redis/client');
  const outage = outageLog(log);
  const open = (): RedisClient => {
    const client: RedisClient = create({
      url,
      socket: {
        connectTimeout: CONNECT_MS,
        socketTimeout: 2 * PING_MS,
        reconnectStrategy: (retries) => backoffMs(retries, { first: 50, max: MAX_RECONNECT_MS, jitter: 0.5 }),
      },
      disableOfflineQueue: true,
      commandsQueueMaxLength: MAX_COMMANDS,
    });
    client.on('error', (error: Error) => outage.begin(client, error));
    client.on('ready', () => outage.end(client));
    return client;
  };
  const clients = [open(), open()] as const;
  const watches = clients.map(watch);
  await Promise.all(clients.map(connectOnce));
  const [commands, subscriptions] = clients;
  return {
    commands,
    subscriptions,
    close: () => {
      for (const timer of watches) clearInterval(timer);
      for (const client of clients) client.destroy();
    },
  };
}

/** Starts to connect and waits until the first attempt has succeeded or failed. */
async function connectOnce(client: RedisClient): Promise<void> {
  const attempted = once(client, 'ready').catch(() => undefined);
  connect(client);
  await attempted;
}

/** Rejects only if the client is destroyed first, since the reconnect strategy never gives up. */
function connect(client: RedisClient): void {
  client.connect().catch(() => undefined);
}

/** Pings regularly: the client itself does not notice missing responses as long as it has something to send. */
function watch(client: RedisClient): NodeJS.Timeout {
  let waiting = false;
  client.on('ready', () => (waiting = false));
  return setInterval(() => {
    if (!client.isReady) return;
    if (waiting) {
      client.emit('error', new Error(`no answer for ${PING_MS / 1000} s`));
      client.destroy();
      connect(client);
      return;
    }
    waiting = true;
    client.ping().then(
      () => (waiting = false),
      // The queue is full, or the ping was lost with its connection.
      () => undefined,
    );
  }, PING_MS).unref();
}

/** Logs one line when Redis becomes unavailable and one when it is back, for any number of connections and attempts. */
function outageLog(log: Logger) {
  const unavailable = new Set<RedisClient>();
  return {
    begin: (client: RedisClient, { message }: Error): void => {
      if (unavailable.size === 0) log.warn({ reason: message }, 'Redis is unavailable; reconnecting');
      unavailable.add(client);
    },
    end: (client: RedisClient): void => {
      if (unavailable.delete(client) && unavailable.size === 0) log.info('Redis is available again');
    },
  };
}
