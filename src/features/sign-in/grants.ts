import { setTimeout as sleep } from 'node:timers/promises';
import type { McpGrants } from './mcp-grants.ts';
import type { GrantRow } from './tables.ts';
import { waitOrAbort } from '../../lib/abort.ts';
import type { ConnectedAccount } from '../../core/records/servers.ts';
import { isoTime } from '../../core/text.ts';
import type { Fetch } from '../../lib/guarded-fetch.ts';
import { refreshTokens, TokensRefusedError, type SignInTarget, type Tokens } from '../../mcp/authorization-server.ts';
import { NoTokenError } from '../../mcp/client-credentials.ts';
import { Exchange } from '../../mcp/exchange.ts';
import { failureReason } from '../../mcp/failure-reason.ts';
import type { OAuthClient } from '../../mcp/oauth-client.ts';
import type { HttpEndpoint, McpRegistry } from '../../mcp/registry.ts';
import { serverKey, SignInRequiredError, type GrantTokens, type ServerGrants } from '../../mcp/sign-in-required.ts';

/** The server of a grant, and how its tokens are refreshed and revoked: the JSON in `mcp_grants.data`. */
export interface GrantData {
  server: { id: string; name: string; url: string; trusted: boolean };
  target: SignInTarget;
  /** Absent if the operator has configured it. */
  client?: OAuthClient;
  /** The name of the account at the provider; absent if the provider did not send it. */
  account?: string;
}

/** A grant, decoded. */
export interface Grant extends Pick<GrantRow, 'id' | 'version' | 'created_at'>, GrantData {
  tokens: Tokens;
}

interface GrantsOptions {
  catalog: { mcpGrants: McpGrants };
  registry: Pick<McpRegistry, 'clientOf'>;
  /** The fetch function for the authorization server of a server; it ends every request after a time-out. */
  fetchFor: (server: { trusted: boolean }) => Fetch;
  /** Milliseconds since 1970. */
  now?: () => number;
}

/** How long one process reserves a refresh before another may try; longer than the time-out of the request. */
const REFRESH_MS = 20_000;
/** How often the other processes check for the refreshed tokens. */
const POLL_MS = 200;

/**
 * The access of subjects to MCP servers. Tokens are read from the catalog for each request, so that no process uses a
 * revoked grant. Concurrent requests, in all processes, refresh a token only once: an authorization server may treat
 * the second use of a refresh token as theft, and end the grant (OAuth 2.1, section 4.3.1).
 */
export class Grants implements ServerGrants {
  readonly #rows: McpGrants;
  readonly #registry: GrantsOptions['registry'];
  readonly #fetchFor: GrantsOptions['fetchFor'];
  readonly #now: () => number;
  readonly #refreshing = new Map<string, Promise<string>>();

  constructor({ catalog, registry, fetchFor, now = Date.now }: GrantsOptions) {
    this.#registry = registry;
    this.#rows = catalog.mcpGrants;
    this.#fetchFor = fetchFor;
    this.#now = now;
  }

  find(subjectId: string, endpoint: HttpEndpoint): Promise<string | undefined> {
    return this.#rows.find(subjectId, serverKey(endpoint));
  }

  async account(id: string): Promise<ConnectedAccount | undefined> {
    const row = await this.#rows.get(id);
    if (!row) return undefined;
    const { account = null, target, created_at: since } = grantOf(row);
    return { grantId: id, account, issuer: target.server.issuer, since };
  }

  tokensOf(id: string): GrantTokens {
    return {
      id,
      scopes: async () => {
        const { target, tokens } = await this.#get(id);
        return [target.scope, tokens.scope].flatMap((scope) => scope?.split(' ') ?? []);
      },
      current: async (signal) => {
        const { tokens } = await this.#get(id);
        const { accessToken, freshUntil = Infinity } = tokens;
        return this.#now() < freshUntil ? accessToken : this.#refreshed(id, accessToken, signal);
      },
      refreshed: (rejected, signal) => this.#refreshed(id, rejected, signal),
      drop: async (rejected) => {
        const row = await this.#rows.get(id);
        if (row && grantOf(row).tokens.accessToken === rejected) await this.#rows.remove(row);
      },
    };
  }

  async #get(id: string): Promise<Grant> {
    const row = await this.#rows.get(id);
    if (!row) throw new SignInRequiredError();
    return grantOf(row);
  }

  #refreshed(id: string, old: string, signal: AbortSignal): Promise<string> {
    const running =
      this.#refreshing.get(id) ??
      // Runs outside of the caller's request, since the refresh serves all callers.
      Exchange.outside(() => this.#refresh(id, old)).finally(() => this.#refreshing.delete(id));
    this.#refreshing.set(id, running);
    return waitOrAbort(running, signal);
  }

  async #refresh(id: string, old: string): Promise<string> {
    for (;;) {
      const grant = await this.#get(id);
      const { tokens, target, server, client = this.#registry.clientOf(server) } = grant;
      if (tokens.accessToken !== old) return tokens.accessToken;
      const { refreshToken } = tokens;
      if (refreshToken === undefined || !client) {
        await this.#rows.remove(grant);
        throw new SignInRequiredError();
      }
      const now = this.#now();
      const until = { now: isoTime(now), until: isoTime(now + REFRESH_MS) };
      if (!(await this.#rows.reserveRefresh(grant, until))) {
        await sleep(POLL_MS);
        continue;
      }
      try {
        const request = { client, refreshToken };
        const next = await refreshTokens(target, request, { fetch: this.#fetchFor(server), now });
        const isStored = await this.#rows.replaceTokens(grant, JSON.stringify(next));
        if (!isStored) throw new SignInRequiredError();
        return next.accessToken;
      } catch (error) {
        if (error instanceof SignInRequiredError) throw error;
        if (error instanceof TokensRefusedError) {
          await this.#rows.remove(grant);
          throw new SignInRequiredError();
        }
        await this.#rows.releaseRefresh(grant);
        const { issuer } = target.server;
        throw new NoTokenError(`cannot be used: ${issuer} ${failureReason(error)}`, { cause: error });
      }
    }
  }
}

/** For checks that act for no subject: a server that requires a sign-in then requests one. */
export const NO_GRANTS: ServerGrants = {
  find: () => Promise.resolve(undefined),
  account: () => Promise.resolve(undefined),
  tokensOf: () => {
    throw new Error('there are no grants');
  },
};

/** Decodes a row. */
export function grantOf({ id, version, created_at, data, tokens }: GrantRow): Grant {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `SignIns` and this class
  const decoded = { ...JSON.parse(data), tokens: JSON.parse(tokens) } as GrantData & { tokens: Tokens };
  return { id, version, created_at, ...decoded };
}
