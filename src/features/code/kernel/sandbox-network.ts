import type { Logger } from 'pino';
import { KeyedSemaphore } from '../../../lib/keyed-semaphore.ts';
import { isPrivateAddress } from '../../../lib/private-address.ts';
import { isWithinMaximum, type NetworkMaximum } from '../../../spec/host-pattern.ts';
import { NetworkProxy } from './network-proxy.ts';

/** The maximum number of concurrent connections of the kernels and commands of one sandbox. */
const MAX_CONNECTIONS = 128;

/**
 * Limits concurrent lookups: names are looked up in the four threads that the process has for all of its work, and a
 * name server that does not respond blocks one for many seconds.
 */
const lookups = new KeyedSemaphore(2);

interface HostNetworkOptions {
  maximum: NetworkMaximum;
  /** Whether the names of hosts may resolve to private addresses. */
  allowPrivate: () => boolean;
  log: Logger;
}

/** The network that the operator of a kernel host permits for code. */
export class HostNetwork {
  readonly #options: HostNetworkOptions;

  constructor(options: HostNetworkOptions) {
    this.#options = options;
  }

  get log(): Logger {
    return this.#options.log;
  }

  /** The hosts of an agent that the operator currently allows: possibly fewer than when the agent was accepted. */
  within(patterns: readonly string[]): string[] {
    return patterns.filter((pattern) => isWithinMaximum(pattern, this.#options.maximum));
  }

  refuses(address: string): boolean {
    return !this.#options.allowPrivate() && isPrivateAddress(address);
  }
}

/** The network that one kernel or command may access. */
export interface AllowedNetwork {
  openProxy: () => Promise<NetworkProxy>;
}

/** The network of one sandbox. */
export class SandboxNetwork {
  readonly #host: HostNetwork;
  readonly #folder: string;
  readonly #lookups = new KeyedSemaphore(1);
  #connections = 0;

  /** @param folder an existing folder for the sockets of its proxies */
  constructor(host: HostNetwork, folder: string) {
    this.#host = host;
    this.#folder = folder;
  }

  /** The network of a kernel or command whose agent allows these hosts; undefined: none. */
  allowing(patterns: readonly string[]): AllowedNetwork | undefined {
    const hosts = this.#host.within(patterns);
    if (hosts.length === 0) return undefined;
    const refuses = (address: string): boolean => this.#host.refuses(address);
    const inTurn = (lookUp: () => Promise<void>) => this.#lookups.run('', () => lookups.run('', lookUp));
    const rules = { hosts, refuses, take: () => this.#take(), inTurn, log: this.#host.log };
    return { openProxy: () => NetworkProxy.open(rules, this.#folder) };
  }

  #take(): (() => void) | undefined {
    if (this.#connections >= MAX_CONNECTIONS) return undefined;
    this.#connections += 1;
    return () => {
      this.#connections -= 1;
    };
  }
}
