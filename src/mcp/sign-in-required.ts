import { extractWWWAuthenticateParams } from '@modelcontextprotocol/client';
import type { ConnectedAccount } from '../core/records/servers.ts';
import { NEVER_ABORTED } from '../lib/abort.ts';
import { causesOf } from '../lib/errors.ts';
import { withHeaders, type Fetch } from '../lib/guarded-fetch.ts';
import { sha256 } from '../lib/hash.ts';
import { McpServerError } from './errors.ts';
import type { HttpEndpoint, McpEndpoint } from './registry.ts';

/** The requirements of a server for the token (RFC 9728, section 5.1; RFC 6750, section 3). */
export interface Challenge {
  resourceMetadataUrl?: string;
  scope?: string;
}

/** A server that requires a sign-in, and its challenge. */
export interface SignInNeed {
  endpoint: HttpEndpoint;
  challenge: Challenge;
  /** The user's grant, if it allows too little. */
  replaces?: string;
}

/** The access of subjects to the servers that they have signed in to. */
export interface ServerGrants {
  /** The id of the subject's grant for a server. */
  find: (subjectId: string, endpoint: HttpEndpoint) => Promise<string | undefined>;
  /** The account of a grant; undefined if the grant has ended. */
  account: (id: string) => Promise<ConnectedAccount | undefined>;
  tokensOf: (id: string) => GrantTokens;
}

/** The access tokens of one grant. */
export interface GrantTokens {
  /** The id of the grant. */
  id: string;
  /** The scopes that were requested or granted. @throws SignInRequiredError if the grant has ended */
  scopes: () => Promise<string[]>;
  /** @throws SignInRequiredError if the grant has ended */
  current: (signal: AbortSignal) => Promise<string>;
  /** The token after one that the server rejected. @throws SignInRequiredError if there is none */
  refreshed: (rejected: string, signal: AbortSignal) => Promise<string>;
  /** Ends the grant, because the server rejected its refreshed token. */
  drop: (rejected: string) => Promise<void>;
}

/** Why users cannot sign in if the address of this server is unknown. */
export const NO_PUBLIC_URL = 'requires the user to sign in, for which its operator must set EVERTURN_PUBLIC_URL';

/** The server requires the user to sign in. It has not executed the request. */
export class SignInRequiredError extends McpServerError {
  readonly challenge: Challenge;
  /** The user's grant, if it allows too little. */
  readonly replaces: string | undefined;

  constructor(challenge: Challenge = {}, replaces?: string) {
    super(replaces === undefined ? 'requires the user to sign in' : 'requires the user to allow more');
    this.challenge = challenge;
    this.replaces = replaces;
  }
}

/** The error of a required sign-in, which the SDK may have wrapped. */
export function signInRequired(error: unknown): SignInRequiredError | undefined {
  return causesOf(error).find((cause) => cause instanceof SignInRequiredError);
}

/** Whether users sign in to a server by themselves: neither the operator nor the client of a run has given it credentials. */
export function takesSignIn(endpoint: McpEndpoint): endpoint is HttpEndpoint {
  if ('command' in endpoint) return false;
  const hasHeader = Object.keys(endpoint.headers).some((name) => name.toLowerCase() === 'authorization');
  return endpoint.auth?.type !== 'client_credentials' && !hasHeader && endpoint.credentialsOf === undefined;
}

/** Names a server, in the tables of sign-ins and grants. A token for one URL is never sent to another. */
export function serverKey({ id, url }: Pick<HttpEndpoint, 'id' | 'url'>): string {
  return sha256(JSON.stringify([id, url]));
}

/** Longer values of a challenge are ignored. */
const MAX_LENGTH = 1_000;

/**
 * `fetch` that adds the access token of a grant to each request, and repeats a request once with a refreshed token
 * after HTTP 401. A request that is rejected then, or without a grant, fails with `SignInRequiredError`; so does one
 * for which the server requires scopes that the grant was not requested with (RFC 6750, `insufficient_scope`), unless
 * the operator has fixed the scopes. A sign-in adds these, so none is requested if the server rejects them as well.
 */
export function signedIn(fetch: Fetch, tokens: GrantTokens | undefined, mayAddScopes: boolean): Fetch {
  return async (url, init = {}) => {
    const signal = init.signal ?? NEVER_ABORTED;
    const send = (token: string) => fetch(url, withHeaders(init, { authorization: `Bearer ${token}` }));
    const token = await tokens?.current(signal);
    let response = await (token === undefined ? fetch(url, init) : send(token));
    if (response.status === 401 && tokens && token !== undefined) {
      await response.body?.cancel();
      const refreshed = await tokens.refreshed(token, signal);
      response = await send(refreshed);
      if (response.status === 401) await tokens.drop(refreshed);
    }
    if (response.status === 403 && tokens && mayAddScopes) {
      const more = await addedScopes(response, tokens);
      if (more) {
        await response.body?.cancel();
        throw more;
      }
    }
    if (response.status !== 401) return response;
    await response.body?.cancel();
    throw new SignInRequiredError(challengeOf(response));
  };
}

/** The sign-in with the scopes that a grant lacks; undefined if it lacks none that the server names. */
async function addedScopes(response: Response, tokens: GrantTokens): Promise<SignInRequiredError | undefined> {
  if (extractWWWAuthenticateParams(response).error !== 'insufficient_scope') return undefined;
  const { scope = '', ...challenge } = challengeOf(response);
  const known = await tokens.scopes();
  const all = new Set([...known, ...scope.split(' ').filter(Boolean)]);
  if (all.size === new Set(known).size) return undefined;
  return new SignInRequiredError({ ...challenge, scope: [...all].join(' ') }, tokens.id);
}

function challengeOf(response: Response): Challenge {
  const { resourceMetadataUrl, scope } = extractWWWAuthenticateParams(response);
  const url = resourceMetadataUrl?.href;
  return {
    ...(url !== undefined && url.length <= MAX_LENGTH && { resourceMetadataUrl: url }),
    ...(scope !== undefined && scope.length <= MAX_LENGTH && { scope }),
  };
}
