import { lookup, type LookupAddress, type LookupOptions } from 'node:dns';
import { isIP } from 'node:net';
import { Agent, buildConnector, fetch, type Dispatcher } from 'undici';
import { boundedResponse, type AnswerBounds } from './answer-bounds.ts';

/** The fetch of Node and of the SDKs; its own types come from another copy of undici. */
export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** An address that may not be reached from an agent's URL. */
export class RefusedAddressError extends Error {
  static {
    this.prototype.name = 'RefusedAddressError';
  }

  /** Without the address: what names inside of a network stand for is nothing for people outside of it. */
  constructor(host: string) {
    super(
      `${host} is at a private address: that takes EVERTURN_ALLOW_PRIVATE_URLS=true, or for an MCP server its ` +
        'registration by name',
    );
  }
}

export interface AgentOptions {
  /** Addresses that no connection is made to; all are allowed if it is absent. */
  refuses?: (address: string) => boolean;
  connectTimeoutMs: number;
}

/**
 * Connections for `createFetch`. An address is judged where the connection to it is made: after the name was resolved,
 * and again at each redirect, so that neither DNS nor a redirect leads around it.
 */
export function createAgent({ refuses, connectTimeoutMs }: AgentOptions): Agent {
  const connector = {
    timeout: connectTimeoutMs,
    allowH2: false,
    ...(refuses && { lookup: guardedLookup(refuses) }),
  };
  const connect = buildConnector(connector);
  return new Agent({
    // HTTP/2 may resend a request that the server refused or has not seen, out of our sight; HTTP/1.1 never does.
    allowH2: false,
    // Models and tools take as long as they are allowed to, which is not decided here.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: (options, callback) => {
      // net.connect does not look an IP address up.
      if (refuses && isIP(options.hostname) !== 0 && refuses(options.hostname)) {
        const error = new RefusedAddressError(options.hostname);
        queueMicrotask(() => callback(error, null));
        return;
      }
      connect(options, callback);
    },
  });
}

/**
 * Node's own fetch takes no dispatcher of undici 8, so this is undici's. A body that exceeds the bounds fails there;
 * without bounds, which are those of JSON, the caller counts what it reads.
 */
export function createFetch(dispatcher: Dispatcher, bounds?: AnswerBounds): Fetch {
  const bound = (url: string | URL, init: object = {}): unknown => fetch(url, { ...init, dispatcher });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same standard, declared by two copies of undici
  const answered = bound as Fetch;
  return bounds ? async (url, init) => boundedResponse(await answered(url, init), bounds) : answered;
}

type LookupCallback = (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void;

function guardedLookup(refuses: (address: string) => boolean) {
  return (hostname: string, options: LookupOptions, callback: LookupCallback): void => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      const isRefused = addresses?.some(({ address }) => refuses(address));
      const [first] = addresses ?? [];
      if (error) callback(error, []);
      else if (isRefused) callback(new RefusedAddressError(hostname), []);
      else if (options.all || !first) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}
