import { createClient } from '@redis/client';
import type { Logger } from 'pino';
import { backoffMs } from './backoff.ts';

/**
 * Two connections to one Redis. They come back by themselves, for as long as it takes; until then commands are refused at
 * once. Commands on a Redis that hangs are refused after some seconds: who can't wait for that sets a limit.
 */
export interface Redis {
  /** For everything but subscriptions. */
  commands: RedisClient;
  /** Redis wants a connection of their own for them. */
  subscriptions: RedisClient;
  close: () => void;
}

/** What all names of an Everturn begin with: several may share a Redis, as they may share a Temporal. */
export function redisPrefix({ namespace, taskQueue }: { namespace: string; taskQueue: string }): string {
  return `everturn:${namespace}:${taskQueue}:`;
}

export type RedisClient = ReturnType<typeof createClient>;

const CONNECT_MS = 5_000;
const MAX_RECONNECT_MS = 1_000;
/** A Redis that has not answered for this long hangs, or is behind a connection that nobody closed. */
const PING_MS = 5_000;
/** Commands that wait for their turn or for an answer. */
const MAX_COMMANDS = 10_000;

/** Connects; if that fails it is tried again behind the caller's back, and the log says so once. */
export async function openRedis({ url, log }: { url: string; log: Logger }): Promise<Redis> {
  const outage = new Outage(log);
  const open = (): RedisClient => {
    const client: RedisClient = createClient({
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
  await Promise.all(clients.map(firstWord));
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

/** Begins to connect, and waits until it has worked or failed once. */
async function firstWord(client: RedisClient): Promise<void> {
  const word = new Promise<void>((resolve) => {
    client.once('ready', resolve);
    client.once('error', () => resolve());
  });
  connect(client);
  await word;
}

/** Fails only if it is destroyed before: the strategy never gives up. */
function connect(client: RedisClient): void {
  client.connect().catch(() => undefined);
}

/** The client itself does not notice that answers fail to come, as long as it has something to send. */
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
      // Refused, because too much waits already, or lost with its connection.
      () => undefined,
    );
  }, PING_MS).unref();
}

/** One line in the log when Redis goes and one when it is back, however many connections and attempts there are. */
class Outage {
  readonly #away = new Set<RedisClient>();
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  begin(client: RedisClient, { message }: Error): void {
    if (this.#away.size === 0) this.#log.warn({ reason: message }, 'Redis is away; it is tried again until it is back');
    this.#away.add(client);
  }

  end(client: RedisClient): void {
    if (this.#away.delete(client) && this.#away.size === 0) this.#log.info('Redis is back');
  }
}
