import type { Socket } from 'node:net';
import { ipKeyGenerator } from 'express-rate-limit';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { Config } from '../../config.ts';
import { Networks } from '../../lib/networks.ts';

/** A tenth of the connections that a server accepts: see `MAX_CONNECTIONS`. */
const MAX_UNIDENTIFIED = 1_000;

const WARN_INTERVAL_MS = 60_000;
const MAX_TRACKED_WARNINGS = 1_000;

interface ConnectionLimitOptions {
  config: Pick<Config, 'trustedProxies'>;
  log: Logger;
  max?: number;
}

/**
 * Limits the connections of one address that have not carried a request with a valid key or token, so that one address
 * cannot occupy all connections of the server. Connections with a valid key do not count, since a backend or an office
 * with many readers may share an address; those of trusted proxies never count.
 */
export class ConnectionLimit {
  readonly #trusted: Networks;
  readonly #log: Logger;
  readonly #max: number;
  readonly #counts = new Map<string, number>();
  readonly #unidentified = new WeakMap<Socket, string>();
  readonly #warned = new LRUCache<string, true>({ max: MAX_TRACKED_WARNINGS, ttl: WARN_INTERVAL_MS });

  constructor({ config, log, max = MAX_UNIDENTIFIED }: ConnectionLimitOptions) {
    this.#trusted = new Networks(config.trustedProxies);
    this.#log = log;
    this.#max = max;
  }

  /** Counts a new connection, or closes it without a response if it exceeds the limit. */
  admit(socket: Socket): void {
    const { remoteAddress } = socket;
    // The client has already closed it.
    if (remoteAddress === undefined) return;
    if (this.#trusted.has(remoteAddress)) return;
    const address = ipKeyGenerator(remoteAddress);
    const count = this.#counts.get(address) ?? 0;
    if (count >= this.#max) {
      socket.destroy();
      this.#warn(address);
      return;
    }
    this.#counts.set(address, count + 1);
    this.#unidentified.set(socket, address);
    socket.once('close', () => this.identified(socket));
  }

  /** Stops counting a connection, after a request with a valid key or token. */
  identified(socket: Socket): void {
    const address = this.#unidentified.get(socket);
    if (address === undefined) return;
    this.#unidentified.delete(socket);
    const left = (this.#counts.get(address) ?? 1) - 1;
    if (left === 0) this.#counts.delete(address);
    else this.#counts.set(address, left);
  }

  #warn(address: string): void {
    if (this.#warned.has(address)) return;
    this.#warned.set(address, true);
    const hint = 'if it is your proxy, add it to EVERTURN_TRUSTED_PROXIES';
    this.#log.warn({ address, connections: this.#max }, `too many connections without a key from one address; ${hint}`);
  }
}
