import { lookup, type LookupAddress, type LookupOptions } from 'node:dns';
import { isIP } from 'node:net';
import { Agent, buildConnector, fetch, type Dispatcher } from 'undici';
import { boundedResponse, type ResponseBounds } from './response-bounds.ts';
import { NamedError } from './errors.ts';

/** The type of fetch in Node and in the SDKs; undici's own fetch has types from another copy of undici. */
export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** A request with these headers in addition to its own. */
export function withHeaders(init: RequestInit | undefined, added: Readonly<Record<string, string>>): RequestInit {
  const headers = new Headers(init?.headers);
  for (const [name, value] of Object.entries(added)) headers.set(name, value);
  return { ...init, headers: Object.fromEntries(headers) };
}

/** A host resolves to an address that no connection may be made to. */
export class RefusedAddressError extends NamedError {
  /** The message omits the address: clients outside of a network must not learn what its names resolve to. */
  constructor(host: string) {
    super(`${host} is at a private address: set EVERTURN_ALLOW_PRIVATE_URLS=true, or register the MCP server by name`);
  }
}

interface AgentOptions {
  /** Returns true for addresses that no connection may be made to; without it all are allowed. */
  refuses?: (address: string) => boolean;
  connectTimeoutMs: number;
}

/**
 * Creates the connection pool for `createFetch`. Addresses are checked when a connection is made, after DNS resolution
 * and again at each redirect, so that neither DNS nor a redirect circumvents the check.
 */
export function createAgent({ refuses, connectTimeoutMs }: AgentOptions): Agent {
  const lookUp = refuses && { lookup: guardedLookup(refuses) };
  const connect = buildConnector({ timeout: connectTimeoutMs, allowH2: false, ...lookUp });
  return new Agent({
    // An HTTP/2 client may silently resend a request that the server refused or has not seen; HTTP/1.1 never does.
    allowH2: false,
    // The callers set the time limits of models and tools.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: (options, callback) => {
      // net.connect does not call `lookup` for an IP address.
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
 * Wraps undici's fetch, because Node's own does not accept a dispatcher of undici 8. A body that exceeds the bounds,
 * which are those of JSON, fails; without bounds the caller counts the bytes that it reads.
 */
export function createFetch(dispatcher: Dispatcher, bounds?: ResponseBounds): Fetch {
  const bound = (url: string | URL, init: object = {}): unknown => fetch(url, { ...init, dispatcher });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same standard, declared by two copies of undici
  const guarded = bound as Fetch;
  return bounds ? async (url, init) => boundedResponse(await guarded(url, init), bounds) : guarded;
}

type LookupCallback = (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void;

/** The `lookup` of a connection to a host that is refused if any of its addresses is. */
export function guardedLookup(refuses: (address: string) => boolean) {
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
