import {
  checkResourceAllowed,
  discoverAuthorizationServerMetadata,
  discoverOAuthProtectedResourceMetadata,
  resourceUrlFromServerUrl,
  selectClientAuthMethod,
  type ClientAuthMethod,
} from '@modelcontextprotocol/client';
import { z } from 'zod';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { NEVER, waitOrAbort } from '../lib/abort.ts';
import { Exchange } from './exchange.ts';
import { failureReason, McpServerError } from './failure-reason.ts';
import { isSecure, type ClientCredentialsConfig } from './registry-file.ts';
import { SingleFlight } from '../lib/single-flight.ts';

interface Options {
  fetch: Fetch;
  /** For a token, discovery included. */
  answerTimeoutMs: number;
  /** Milliseconds that never run backwards. */
  now: () => number;
}

/** A token is replaced so long before it expires, or in the last tenth of its time. */
const MARGIN_MS = 30_000;

interface Token {
  value: string;
  freshUntil: number;
}

/** Where a token is to be had, and how. */
interface TokenEndpoint {
  url: string;
  method: ClientAuthMethod;
  resource: string | undefined;
}

const tokenAnswer = z.object({
  access_token: z.string().min(1),
  token_type: z
    .string()
    .regex(/^bearer$/i)
    .optional(),
  expires_in: z.coerce.number().positive().optional(),
});

const errorAnswer = z.object({ error: z.string(), error_description: z.string().optional() });

/** No token for a server can be had. Thrown where nothing was sent to it, or where it has refused what was. */
export class NoTokenError extends McpServerError {
  static {
    this.prototype.name = 'NoTokenError';
  }
}

/**
 * The token with which we call a server in our own name (RFC 6749, section 4.4), one for all who call it. The SDK's
 * provider has no token endpoint of the operator's choice, and does not look at how long a token is good for.
 */
export class ClientCredentials {
  readonly #serverUrl: string;
  readonly #config: ClientCredentialsConfig;
  readonly #options: Options;
  readonly #asking: SingleFlight<Token>;
  #token: Token | undefined;

  constructor(serverUrl: string, config: ClientCredentialsConfig, options: Options) {
    this.#serverUrl = serverUrl;
    this.#config = config;
    this.#options = options;
    this.#asking = new SingleFlight(options.now);
  }

  /** @throws NoTokenError, or the reason of the signal. */
  async token(signal: AbortSignal): Promise<string> {
    if (this.#token && this.#options.now() < this.#token.freshUntil) return this.#token.value;
    const asking = this.#asking.run(async () => (this.#token = await Exchange.outside(() => this.#ask())));
    return (await waitOrAbort(asking, signal)).value;
  }

  /** A token that the server does not take is not given to anybody again. */
  refused(value: string): void {
    if (this.#token?.value === value) this.#token = undefined;
  }

  async #ask(): Promise<Token> {
    const { answerTimeoutMs, now } = this.#options;
    const signal = AbortSignal.timeout(answerTimeoutMs);
    const fetch: Fetch = (url, init) => this.#options.fetch(url, { ...init, signal });
    const askedAt = now();
    let where = 'its authorization server';
    try {
      const endpoint = await this.#endpoint(fetch);
      where = `its token endpoint ${endpoint.url}`;
      const { access_token: value, expires_in: seconds } = await this.#request(endpoint, fetch);
      const lifeMs = (seconds ?? Infinity) * 1000;
      return { value, freshUntil: askedAt + Math.max(lifeMs - MARGIN_MS, lifeMs * 0.9) };
    } catch (error) {
      const reason = signal.aborted ? `did not answer within ${answerTimeoutMs / 1000} s` : failureReason(error);
      throw new NoTokenError(`can't be used: ${where} ${reason}`, { cause: error });
    }
  }

  async #endpoint(fetch: Fetch): Promise<TokenEndpoint> {
    const { token_url: url, issuer, resource } = this.#config;
    if (url !== undefined) return { url, method: 'client_secret_basic', resource };
    // Of the issuer that the operator names, never of the one that the MCP server does: the secret goes where it says.
    // The SDK checks that the metadata is of this issuer (RFC 8414, section 3.3).
    const found = await discoverAuthorizationServerMetadata(issuer, { fetchFn: fetch });
    const { token_endpoint: tokenUrl, token_endpoint_auth_methods_supported: methods = [] } = found ?? {};
    if (!tokenUrl) throw new McpServerError('can not be discovered: set token_url');
    if (!isSecure(tokenUrl)) throw new McpServerError(`has a token endpoint without TLS, ${tokenUrl}: set token_url`);
    const resourceMetadata = discoverOAuthProtectedResourceMetadata(this.#serverUrl, undefined, fetch);
    const named = await resourceMetadata.then(
      (metadata) => metadata.resource,
      () => undefined, // It need not have any.
    );
    const requestedResource = resourceUrlFromServerUrl(this.#serverUrl);
    if (named !== undefined && !checkResourceAllowed({ requestedResource, configuredResource: named })) {
      throw new McpServerError(`is asked for another resource, ${named}: set token_url and resource`);
    }
    const method = selectClientAuthMethod({ client_id: this.#config.client_id, client_secret: '' }, methods);
    return { url: tokenUrl, method, resource: resource ?? named };
  }

  async #request({ url, method, resource }: TokenEndpoint, fetch: Fetch): Promise<z.infer<typeof tokenAnswer>> {
    const { client_id: id, client_secret: secret, scope, audience } = this.#config;
    const isBasic = method === 'client_secret_basic';
    const basic = Buffer.from(`${formEncoded(id)}:${formEncoded(secret)}`).toString('base64');
    const response = await fetch(url, {
      method: 'POST',
      // A redirect would take the secret elsewhere.
      redirect: 'error',
      headers: {
        accept: 'application/json',
        'content-type': 'application/x-www-form-urlencoded',
        ...(isBasic && { authorization: `Basic ${basic}` }),
      },
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        ...(!isBasic && { client_id: id, client_secret: secret }),
        ...(scope !== undefined && { scope }),
        ...(resource !== undefined && { resource }),
        ...(audience !== undefined && { audience }),
      }).toString(),
    });
    const answer: unknown = await response.json().catch(() => undefined);
    const { data: token } = tokenAnswer.safeParse(answer);
    if (response.ok && token) return token;
    const { data: refusal } = errorAnswer.safeParse(answer);
    const said = refusal && [refusal.error, refusal.error_description].filter(Boolean).join(': ');
    throw new McpServerError(
      said ? `refused: ${said}` : `answered with HTTP ${response.status}${response.ok ? ' and no token' : ''}`,
    );
  }
}

/** `fetch` with the token in each request; one that is refused for its token is made once more with a new one. */
export function authorized(fetch: Fetch, credentials: ClientCredentials): Fetch {
  return async (url, init = {}) => {
    const send = async (token: string): Promise<Response> => {
      const headers = new Headers(init.headers);
      headers.set('authorization', `Bearer ${token}`);
      return fetch(url, { ...init, headers: Object.fromEntries(headers) });
    };
    const token = await credentials.token(init.signal ?? NEVER);
    const response = await send(token);
    if (response.status !== 401) return response;
    await response.body?.cancel();
    credentials.refused(token);
    return send(await credentials.token(init.signal ?? NEVER));
  };
}

/** RFC 6749, section 2.3.1. */
function formEncoded(text: string): string {
  return new URLSearchParams({ text }).toString().slice('text='.length);
}
