import type { Logger } from 'pino';
import { KeyedSemaphore } from '../../../lib/keyed-semaphore.ts';
import { isPrivateAddress } from '../../../lib/private-address.ts';
import { isWithinMaximum, type NetworkMaximum } from '../../../spec/host-pattern.ts';
import { NetworkProxy } from './network-proxy.ts';

/** How many connections the kernels and commands of one sandbox have at once. */
const MAX_CONNECTIONS = 128;

/**
 * Names are looked up in threads of the process, of which there are four for all of its work. A name server that does not
 * answer keeps one for many seconds.
 */
const lookups = new KeyedSemaphore(2);

interface HostNetworkOptions {
  maximum: NetworkMaximum;
  /** Whether the names of hosts may lead to private addresses. */
  allowPrivate: () => boolean;
  log: Logger;
}

/** What the operator of a kernel host lets code reach. */
export class HostNetwork {
  readonly #options: HostNetworkOptions;

  constructor(options: HostNetworkOptions) {
    this.#options = options;
  }

  get log(): Logger {
    return this.#options.log;
  }

  /** Those of an agent's hosts that the operator allows now, which may be fewer than when the agent was accepted. */
  within(patterns: readonly string[]): string[] {
    return patterns.filter((pattern) => isWithinMaximum(pattern, this.#options.maximum));
  }

  refuses(address: string): boolean {
    return !this.#options.allowPrivate() && isPrivateAddress(address);
  }
}

/** What one kernel or command may reach. */
export interface AllowedNetwork {
  openProxy: () => Promise<NetworkProxy>;
}

/** The network of one sandbox. */
export class SandboxNetwork {
  readonly #host: HostNetwork;
  readonly #folder: string;
  readonly #lookups = new KeyedSemaphore(1);
  #connections = 0;

  /** @param folder in which its proxies have their sockets, and which exists */
  constructor(host: HostNetwork, folder: string) {
    this.#host = host;
    this.#folder = folder;
  }

  /** What a kernel or a command may reach whose agent allows these hosts; undefined: nothing. */
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
