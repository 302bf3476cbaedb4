import {
  checkResourceAllowed,
  discoverAuthorizationServerMetadata,
  discoverOAuthProtectedResourceMetadata,
  exchangeAuthorization,
  OAuthError,
  refreshAuthorization,
  registerClient,
  resourceUrlFromServerUrl,
  startAuthorization,
  type OAuthTokens,
} from '@modelcontextprotocol/client';
import { z } from 'zod';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { accountOf } from './account.ts';
import { McpServerError } from './errors.ts';
import { failureReason } from './failure-reason.ts';
import { MARGIN_MS } from './client-credentials.ts';
import { authenticateClient, postAs, type OAuthClient } from './oauth-client.ts';
import { isSecure } from './registry-file.ts';
import type { Challenge } from './sign-in-required.ts';
import type { HttpEndpoint } from './registry.ts';

/** An endpoint to which credentials or the user are sent: https, or http on this machine. */
const endpointUrl = z
  .url({ protocol: /^https?$/ })
  .max(2_000)
  .refine(isSecure, 'must be an https URL');

/** The metadata that is kept of an authorization server (RFC 8414). */
const authorizationServer = z.object({
  issuer: z.string().max(2_000),
  authorization_endpoint: endpointUrl,
  token_endpoint: endpointUrl,
  registration_endpoint: endpointUrl.optional(),
  revocation_endpoint: endpointUrl.optional(),
  // A wrong one prevents no sign-in.
  userinfo_endpoint: endpointUrl.optional().catch(undefined),
  response_types_supported: z.array(z.string()).max(100),
  // MCP requires PKCE, and this is the only sign that a server supports it.
  code_challenge_methods_supported: z.array(z.string()).max(100),
  token_endpoint_auth_methods_supported: z.array(z.string()).max(100).optional(),
  scopes_supported: z.array(z.string().max(200)).max(1_000).optional(),
  authorization_response_iss_parameter_supported: z.boolean().optional(),
  client_id_metadata_document_supported: z.boolean().optional(),
});

type AuthorizationServer = z.infer<typeof authorizationServer>;

/** Where the user signs in to a server, and for what. */
export interface SignInTarget {
  server: AuthorizationServer;
  /** The resource that the token is for (RFC 8707). */
  resource: string;
  scope?: string;
}

export interface Tokens {
  accessToken: string;
  refreshToken?: string;
  /** The access token is refreshed from this time on: milliseconds since 1970. */
  freshUntil?: number;
  /** What the authorization server granted, if it differs from what was requested. */
  scope?: string;
}

/** The authorization server rejected a request for tokens. The same request will not succeed later. */
export class TokensRefusedError extends McpServerError {}

/**
 * Discovers where users sign in to a server. An issuer that the operator configured is used instead of the one that the
 * server names, because the operator's secret is sent where its metadata says.
 * @throws McpServerError
 */
export async function discoverTarget(
  { url, auth }: HttpEndpoint,
  challenge: Challenge,
  fetch: Fetch,
): Promise<SignInTarget> {
  const own = auth?.type === 'authorization_code' ? auth : undefined;
  const metadata = await discoverOAuthProtectedResourceMetadata(
    url,
    challenge.resourceMetadataUrl === undefined ? {} : { resourceMetadataUrl: challenge.resourceMetadataUrl },
    fetch,
  ).catch(() => undefined); // Servers of 2025-03-26 have none; they are authorization servers themselves.
  const requestedResource = resourceUrlFromServerUrl(url);
  const configuredResource = metadata?.resource ?? requestedResource.href;
  if (!checkResourceAllowed({ requestedResource, configuredResource })) {
    throw new McpServerError(`names another resource than itself, ${configuredResource}`);
  }
  const issuer = own?.issuer ?? metadata?.authorization_servers?.[0] ?? new URL('/', url).href;
  const server = await discoverServer(issuer, fetch);
  const offline = server.scopes_supported?.includes('offline_access') === true ? ['offline_access'] : [];
  const wanted = own?.scope ?? challenge.scope ?? metadata?.scopes_supported?.join(' ') ?? '';
  const scope = [...new Set([...wanted.split(' ').filter(Boolean), ...offline])].join(' ');
  if (scope.length > 2_000) throw new McpServerError('requires more scopes than a URL can name');
  return { server, resource: configuredResource, ...(scope && { scope }) };
}

async function discoverServer(issuer: string, fetch: Fetch): Promise<AuthorizationServer> {
  let found: unknown;
  try {
    found = await discoverAuthorizationServerMetadata(issuer, { fetchFn: fetch });
  } catch (error) {
    throw new McpServerError(`has an authorization server ${issuer}, which ${failureReason(error)}`, { cause: error });
  }
  if (!found) throw new McpServerError('names no authorization server');
  const { data, error } = authorizationServer.safeParse(found);
  if (data?.code_challenge_methods_supported.includes('S256') && data.response_types_supported.includes('code')) {
    return data;
  }
  const [issue] = error?.issues ?? [];
  const problem = issue ? `has wrong metadata: ${issue.path.join('.')}: ${issue.message}` : 'does not support PKCE';
  throw new McpServerError(`has an authorization server ${issuer}, which ${problem}`);
}

/** Registers a client for one redirect URI (RFC 7591). @throws McpServerError */
export async function registerAt(server: AuthorizationServer, redirectUri: string, fetch: Fetch): Promise<OAuthClient> {
  if (server.registration_endpoint === undefined) {
    throw new McpServerError(
      'requires a client that its operator has registered: set auth of the server in EVERTURN_MCP_SERVERS',
    );
  }
  const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
  const method = ['none', 'client_secret_basic', 'client_secret_post'].find((one) => methods.includes(one));
  const clientMetadata = { ...clientMetadataFor(redirectUri), token_endpoint_auth_method: method ?? 'none' };
  const { client_id: id, client_secret: secret } = await registerClient(server.issuer, {
    metadata: server,
    clientMetadata,
    fetchFn: fetch,
  });
  return { client_id: id, ...(secret !== undefined && { client_secret: secret }) };
}

/** The metadata of this server as a client of authorization servers. */
export function clientMetadataFor(redirectUri: string) {
  return {
    client_name: 'Everturn',
    redirect_uris: [redirectUri],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    application_type: new URL(redirectUri).protocol === 'http:' ? 'native' : 'web',
  };
}

/** The URL at which the user signs in, and the secret that proves who asked for it (PKCE, S256). */
export async function authorizationUrl(
  { server, resource, scope }: SignInTarget,
  { client, redirectUri, state }: { client: OAuthClient; redirectUri: string; state: string },
): Promise<{ url: string; codeVerifier: string }> {
  const { authorizationUrl: url, codeVerifier } = await startAuthorization(server.issuer, {
    metadata: server,
    clientInformation: client,
    redirectUrl: redirectUri,
    state,
    resource: new URL(resource),
    ...(scope !== undefined && { scope }),
  });
  return { url: url.href, codeVerifier };
}

/** Exchanges a code for tokens; `account`: their account, if known. @throws TokensRefusedError, McpServerError */
export async function exchangeCode(
  target: SignInTarget,
  request: { client: OAuthClient; code: string; codeVerifier: string; redirectUri: string; iss: string | undefined },
  { fetch, now }: { fetch: Fetch; now: number },
): Promise<{ tokens: Tokens; account: string | undefined }> {
  const { client, code, codeVerifier, redirectUri, iss } = request;
  const { server, scope } = target;
  let body: unknown;
  // The SDK leaves out what is not in OAuth.
  const keeping: Fetch = async (url, init) => {
    const response = await fetch(url, init);
    body = await response
      .clone()
      .json()
      .catch(() => undefined);
    return response;
  };
  const exchanged = exchangeAuthorization(server.issuer, {
    ...requestFor(target, client),
    authorizationCode: code,
    codeVerifier,
    redirectUri,
    fetchFn: keeping,
    ...(iss !== undefined && { iss }),
  });
  const tokens = tokensOf(await refusalOf(exchanged), now);
  const { userinfo_endpoint: endpoint } = server;
  const isForUserinfo = endpoint !== undefined && (tokens.scope ?? scope ?? '').split(' ').includes('openid');
  const userinfo = isForUserinfo ? { endpoint, accessToken: tokens.accessToken } : undefined;
  return { tokens, account: await accountOf({ response: body, userinfo, fetch }) };
}

/** Refreshes tokens. Without a new refresh token the old one stays. @throws TokensRefusedError, McpServerError */
export async function refreshTokens(
  target: SignInTarget,
  { client, refreshToken }: { client: OAuthClient; refreshToken: string },
  { fetch, now }: { fetch: Fetch; now: number },
): Promise<Tokens> {
  const request = { ...requestFor(target, client), refreshToken, fetchFn: fetch };
  return tokensOf(await refusalOf(refreshAuthorization(target.server.issuer, request)), now);
}

/** The parameters of all requests for tokens. */
function requestFor({ server, resource }: SignInTarget, client: OAuthClient) {
  return {
    metadata: server,
    addClientAuthentication: (headers: Headers, body: URLSearchParams) =>
      authenticateClient(client, server, headers, body),
    clientInformation: client,
    resource: new URL(resource),
  };
}

/** Revokes tokens (RFC 7009), if the authorization server can. @throws McpServerError */
export async function revokeTokens(
  { server }: SignInTarget,
  { client, tokens }: { client: OAuthClient; tokens: Tokens },
  fetch: Fetch,
): Promise<void> {
  if (server.revocation_endpoint === undefined) return;
  // With the refresh token, servers end the access tokens that were issued for it (section 2.1).
  const form: Record<string, string> = tokens.refreshToken
    ? { token: tokens.refreshToken, token_type_hint: 'refresh_token' }
    : { token: tokens.accessToken, token_type_hint: 'access_token' };
  const response = await postAs(client, server.revocation_endpoint, { server, form, fetch });
  await response.body?.cancel();
  if (!response.ok) throw new McpServerError(`answered with HTTP ${response.status}`);
}

/** Turns the error codes of OAuth into `TokensRefusedError`, except for those that mean an outage. */
async function refusalOf<T>(request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (error) {
    const isOutage = ['server_error', 'temporarily_unavailable', 'too_many_requests'];
    if (!(error instanceof OAuthError) || isOutage.includes(error.code)) throw error;
    throw new TokensRefusedError(`rejected the request: ${failureReason(error)}`, { cause: error });
  }
}

function tokensOf({ access_token, token_type, refresh_token, expires_in, scope }: OAuthTokens, now: number): Tokens {
  if (!/^bearer$/i.test(token_type)) throw new TokensRefusedError('issued a token that is not a bearer token');
  // It becomes the value of a header.
  if (!/^[\x21-\x7e]+$/.test(access_token)) throw new TokensRefusedError('issued a token that cannot be sent');
  const lifeMs = (expires_in ?? Infinity) * 1000;
  return {
    accessToken: access_token,
    ...(refresh_token !== undefined && { refreshToken: refresh_token }),
    ...(Number.isFinite(lifeMs) && { freshUntil: now + Math.max(lifeMs - MARGIN_MS, lifeMs * 0.9) }),
    ...(scope !== undefined && { scope }),
  };
}
