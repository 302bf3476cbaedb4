import { extractWWWAuthenticateParams } from '@modelcontextprotocol/client';
import { NEVER } from '../lib/abort.ts';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { sha256 } from '../lib/hash.ts';
import { McpServerError } from './errors.ts';
import type { GrantTokens } from './grants.ts';
import type { HttpEndpoint, McpEndpoint } from './registry.ts';

/** What a server said about the token that it requires (RFC 9728, section 5.1; RFC 6750, section 3). */
export interface Challenge {
  resourceMetadataUrl?: string;
  scope?: string;
}

/** A server that requires a sign-in, and what it said. */
export interface SignInNeed {
  endpoint: HttpEndpoint;
  challenge: Challenge;
  /** The user's grant, if it allows too little. */
  replaces?: string;
}

/** The server requires the user to sign in. It has not executed the request. */
export class SignInRequiredError extends McpServerError {
  static {
    this.prototype.name = 'SignInRequiredError';
  }

  readonly challenge: Challenge;

  constructor(challenge: Challenge = {}) {
    super('requires the user to sign in');
    this.challenge = challenge;
  }
}

/** The error that says that a sign-in is required, which the SDK may have wrapped. */
export function signInRequired(error: unknown): SignInRequiredError | undefined {
  let inner = error;
  while (inner instanceof Error && !(inner instanceof SignInRequiredError)) inner = inner.cause;
  return inner instanceof SignInRequiredError ? inner : undefined;
}

/** Whether users sign in to a server by themselves: the operator has not given it credentials. */
export function takesSignIn(endpoint: McpEndpoint): endpoint is HttpEndpoint {
  if ('command' in endpoint) return false;
  const hasHeader = Object.keys(endpoint.headers).some((name) => name.toLowerCase() === 'authorization');
  return endpoint.auth?.type !== 'client_credentials' && !hasHeader;
}

/** Names a server, in the tables of sign-ins and grants. A token for one URL is never sent to another. */
export function serverKey({ id, url }: Pick<HttpEndpoint, 'id' | 'url'>): string {
  return sha256(JSON.stringify([id, url]));
}

/** Longer values of a challenge are ignored. */
const MAX_LENGTH = 1_000;

/**
 * `fetch` that adds the access token of a grant to each request, and repeats a request once with a refreshed token
 * after HTTP 401. A request that is rejected then, or without a grant, fails with `SignInRequiredError`.
 */
export function signedIn(fetch: Fetch, tokens: GrantTokens | undefined): Fetch {
  return async (url, init = {}) => {
    const signal = init.signal ?? NEVER;
    const send = (token: string): Promise<Response> => {
      const headers = new Headers(init.headers);
      headers.set('authorization', `Bearer ${token}`);
      return fetch(url, { ...init, headers: Object.fromEntries(headers) });
    };
    const token = await tokens?.current(signal);
    let response = await (token === undefined ? fetch(url, init) : send(token));
    if (response.status === 401 && tokens && token !== undefined) {
      await response.body?.cancel();
      const refreshed = await tokens.refreshed(token, signal);
      response = await send(refreshed);
      if (response.status === 401) await tokens.drop(refreshed);
    }
    if (response.status !== 401) return response;
    await response.body?.cancel();
    throw new SignInRequiredError(challengeOf(response));
  };
}

function challengeOf(response: Response): Challenge {
  const { resourceMetadataUrl, scope } = extractWWWAuthenticateParams(response);
  const url = resourceMetadataUrl?.href;
  return {
    ...(url !== undefined && url.length <= MAX_LENGTH && { resourceMetadataUrl: url }),
    ...(scope !== undefined && scope.length <= MAX_LENGTH && { scope }),
  };
}
