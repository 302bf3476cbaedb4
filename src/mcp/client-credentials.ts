import {
  checkResourceAllowed,
  discoverAuthorizationServerMetadata,
  discoverOAuthProtectedResourceMetadata,
  resourceUrlFromServerUrl,
} from '@modelcontextprotocol/client';
import { z } from 'zod';
import { withHeaders, type Fetch } from '../lib/guarded-fetch.ts';
import { NEVER_ABORTED, waitOrAbort } from '../lib/abort.ts';
import { Exchange } from './exchange.ts';
import { McpServerError } from './errors.ts';
import { failureReason } from './failure-reason.ts';
import { postAs } from './oauth-client.ts';
import { isSecure, type ClientCredentialsConfig } from './registry-file.ts';
import { SingleFlight } from '../lib/single-flight.ts';

interface Options {
  fetch: Fetch;
  /** For obtaining a token, including discovery. */
  responseTimeoutMs: number;
  /** A monotonic clock in milliseconds. */
  now: () => number;
}

/** A token is replaced this long before it expires, or in the last tenth of its lifetime if that is shorter. */
export const MARGIN_MS = 30_000;

interface Token {
  value: string;
  freshUntil: number;
}

interface TokenEndpoint {
  url: string;
  server: Parameters<typeof postAs>[2]['server'];
  resource: string | undefined;
}

const tokenResponse = z.object({
  access_token: z.string().min(1),
  token_type: z
    .string()
    .regex(/^bearer$/i)
    .optional(),
  expires_in: z.coerce.number().positive().optional(),
});

const errorResponse = z.object({ error: z.string(), error_description: z.string().optional() });

/** No token could be obtained. Thrown before the request was sent, or after the server rejected it for its token. */
export class NoTokenError extends McpServerError {}

/**
 * `fetch` that adds the client credentials token of a server (RFC 6749, section 4.4) to each request, and repeats a request
 * once with a new token after HTTP 401. All callers of the server share the token. The SDK's provider is not used because
 * it takes no token endpoint from the operator and ignores the lifetime of a token. The requests throw NoTokenError if there
 * is no token.
 */
export function withClientCredentials(
  fetch: Fetch,
  serverUrl: string,
  config: ClientCredentialsConfig,
  options: Options,
): Fetch {
  const pending = new SingleFlight<Token>(options.now);
  let known: Token | undefined;
  const tokenFor = async (signal: AbortSignal): Promise<string> => {
    if (known && options.now() < known.freshUntil) return known.value;
    const renewed = pending.run(async () => {
      known = await Exchange.outside(() => fetchToken(serverUrl, config, options));
      return known;
    });
    return (await waitOrAbort(renewed, signal)).value;
  };
  return async (url, init = {}) => {
    const signal = init.signal ?? NEVER_ABORTED;
    const send = (token: string) => fetch(url, withHeaders(init, { authorization: `Bearer ${token}` }));
    const token = await tokenFor(signal);
    const response = await send(token);
    if (response.status !== 401) return response;
    await response.body?.cancel();
    if (known?.value === token) known = undefined;
    return send(await tokenFor(signal));
  };
}

async function fetchToken(serverUrl: string, config: ClientCredentialsConfig, options: Options): Promise<Token> {
  const { responseTimeoutMs, now } = options;
  const signal = AbortSignal.timeout(responseTimeoutMs);
  const fetch: Fetch = (url, init) => options.fetch(url, { ...init, signal });
  const requestedAt = now();
  let where = 'its authorization server';
  try {
    const endpoint = await endpointOf(serverUrl, config, fetch);
    where = `its token endpoint ${endpoint.url}`;
    const { access_token: value, expires_in: seconds } = await requestToken(endpoint, config, fetch);
    const lifeMs = (seconds ?? Infinity) * 1000;
    return { value, freshUntil: requestedAt + Math.max(lifeMs - MARGIN_MS, lifeMs * 0.9) };
  } catch (error) {
    const reason = signal.aborted ? `did not answer within ${responseTimeoutMs / 1000} s` : failureReason(error);
    throw new NoTokenError(`cannot be used: ${where} ${reason}`, { cause: error });
  }
}

async function endpointOf(serverUrl: string, config: ClientCredentialsConfig, fetch: Fetch): Promise<TokenEndpoint> {
  const { token_url: url, issuer, resource } = config;
  if (url !== undefined) return { url, server: {}, resource };
  // Discovery uses the issuer that the operator configured, never the one that the MCP server names, because the secret
  // is sent where its metadata says. The SDK checks that the metadata belongs to this issuer (RFC 8414, section 3.3).
  const server = await discoverAuthorizationServerMetadata(issuer, { fetchFn: fetch });
  const tokenUrl = server?.token_endpoint;
  if (!tokenUrl) throw new McpServerError('cannot be discovered: set token_url');
  if (!isSecure(tokenUrl)) throw new McpServerError(`has a token endpoint without TLS, ${tokenUrl}: set token_url`);
  const resourceMetadata = discoverOAuthProtectedResourceMetadata(serverUrl, undefined, fetch);
  const resourceOfServer = await resourceMetadata.then(
    (metadata) => metadata.resource,
    () => undefined, // The metadata is optional.
  );
  const requestedResource = resourceUrlFromServerUrl(serverUrl);
  if (
    resourceOfServer !== undefined &&
    !checkResourceAllowed({ requestedResource, configuredResource: resourceOfServer })
  ) {
    throw new McpServerError(
      `would be asked for a token for another resource, ${resourceOfServer}: set token_url and resource`,
    );
  }
  return { url: tokenUrl, server, resource: resource ?? resourceOfServer };
}

async function requestToken(
  { url, server, resource }: TokenEndpoint,
  config: ClientCredentialsConfig,
  fetch: Fetch,
): Promise<z.infer<typeof tokenResponse>> {
  const { scope, audience } = config;
  const form = {
    grant_type: 'client_credentials',
    ...(scope !== undefined && { scope }),
    ...(resource !== undefined && { resource }),
    ...(audience !== undefined && { audience }),
  };
  const response = await postAs(config, url, { server, form, fetch });
  const body: unknown = await response.json().catch(() => undefined);
  const { data: token } = tokenResponse.safeParse(body);
  if (response.ok && token) return token;
  const { data: rejection } = errorResponse.safeParse(body);
  const detail = rejection && [rejection.error, rejection.error_description].filter(Boolean).join(': ');
  throw new McpServerError(
    detail
      ? `rejected the request: ${detail}`
      : `answered with HTTP ${response.status}${response.ok ? ' and no token' : ''}`,
  );
}
