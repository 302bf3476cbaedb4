import { randomBytes, randomInt } from 'node:crypto';
import { validateAuthorizationResponseIssuer } from '@modelcontextprotocol/client';
import type { Logger } from 'pino';
import type { McpGrants } from './mcp-grants.ts';
import type { FoundSignIn, McpSignIns } from './mcp-sign-ins.ts';
import type { SignInRow } from './tables.ts';
import type { ToolScope } from '../../core/history.ts';
import { DIGITS, ulid } from '../../core/ids.ts';
import type { ServerSignIn } from '../../core/records/servers.ts';
import { isOpenTurnState, type TurnState } from '../../core/session-state.ts';
import { unlessNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';
import { isoTime } from '../../core/text.ts';
import { createAgent, createFetch, type Fetch } from '../../lib/guarded-fetch.ts';
import { sha256 } from '../../lib/hash.ts';
import { isPrivateAddress } from '../../lib/private-address.ts';
import {
  authorizationUrl,
  discoverTarget,
  exchangeCode,
  registerAt,
  revokeTokens,
} from '../../mcp/authorization-server.ts';
import { McpServerError } from '../../mcp/errors.ts';
import { failureReason } from '../../mcp/failure-reason.ts';
import { grantOf, Grants, type Grant, type GrantData } from './grants.ts';
import type { OAuthClient } from '../../mcp/oauth-client.ts';
import type { McpRegistry } from '../../mcp/registry.ts';
import { NO_PUBLIC_URL, serverKey, type SignInNeed } from '../../mcp/sign-in-required.ts';
import { isTemporalUnavailable } from '../../temporal/errors.ts';
import { NamedError } from '../../lib/errors.ts';

/** The URLs of this server that sign-ins use. */
export interface SignInUrls {
  /** The page on which a sign-in begins. */
  authorize: (state: string) => string;
  /** The URL to which the authorization server sends the user back. */
  redirectUri: string;
  /** The URL of the metadata of this server as an OAuth client. */
  clientMetadata: string;
}

interface SignInsOptions {
  catalog: { mcpSignIns: McpSignIns; mcpGrants: McpGrants };
  logs: Pick<TurnLogReader, 'currentRun'>;
  registry: McpRegistry;
  /** Undefined if the address at which users reach this server is unknown. */
  urls: SignInUrls | undefined;
  /** Whether untrusted servers may currently be at private addresses. */
  allowPrivateUrls: () => boolean;
  log: Logger;
  /** Milliseconds since 1970. */
  now?: () => number;
  /** The time-out of each request to an authorization server. */
  responseTimeoutMs?: number;
}

/** The stored data of a sign-in: the JSON in `mcp_sign_ins.data`. */
interface SignInData extends Omit<GrantData, 'client' | 'account'> {
  /** The `state` of the link. */
  state: string;
  /** The last visit to the authorization server. */
  flow?: Flow;
}

interface Flow {
  /** Distinguishes this visit from others: it is a part of the `state` that the authorization server gets. */
  nonce: string;
  /** SHA-256 of the identifier of the browser that was sent there. */
  browser: string;
  /** Milliseconds since 1970. */
  begunAt: number;
  redirectUri: string;
  codeVerifier: string;
  client?: OAuthClient;
}

/** The details of a sign-in that a user sees before it. */
export interface OfferedSignIn {
  server: { name: string; url: string };
  issuer: string;
  scopes: string[];
  /** The agent that will use the server; null for a draft. */
  agent: string | null;
  /** The session's owner, for whom the user signs in. */
  owner: { id: string; slug: string };
}

/** The response of an authorization server that the user's browser delivers (RFC 6749, section 4.1.2; RFC 9207). */
interface AuthorizationResponse {
  state: string;
  code?: string | undefined;
  iss?: string | undefined;
  error?: string | undefined;
}

/** How a sign-in ended, and at which server. */
export interface EndedSignIn {
  status: 'granted' | 'declined';
  server: string;
  /** The account at the provider that was just granted access, if the provider names it. */
  account?: string;
  /** Whether the turn resumes by itself. */
  isAwaited: boolean;
}

/** A user's request for a sign-in cannot be fulfilled. The message contains what the user can do. */
export class SignInError extends NamedError {
  readonly code: 'sign_in_not_found' | 'sign_in_failed';

  constructor(code: SignInError['code'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The link has ended because it was used in a second browser or too often. Its turn has to be notified. */
export class SignInReplacedError extends SignInError {
  constructor(reason: string, { isAwaited }: { isAwaited: boolean }) {
    const next = isAwaited ? 'the conversation has a new link' : ASK_AGAIN;
    super('sign_in_not_found', `this link ${reason}, and has ended: ${next}`);
  }
}

/** A sign-in, and whether its turn waits for it, or may do so. */
type OpenedSignIn = FoundSignIn & { isAwaited: boolean };

/** The states of a turn that resumes by itself when its sign-ins have ended. */
const WAITING: ReadonlySet<TurnState> = new Set(['asking', 'waiting_client', 'waiting_person', 'paused']);

/** How long a link is valid if its turn does not wait, and the time limit of a visit to the authorization server. */
const VALID_MS = 10 * 60_000;
/** A sign-in that another call of the same turn has requested is reused if it remains valid for this long. */
const MIN_LEFT_MS = 60_000;
/** The number of visits of a sign-in to the authorization server, each of which may register a client. */
const MAX_REDIRECTS = 10;
/**
 * How many links of a turn to one server are replaced within this time: each one makes the turn retry the server, and
 * adds to its log. A stranger with a link can cause only one replacement, since only the owner gets the next link.
 */
const MAX_REPLACED = 5;
const REPLACED_MS = 10 * 60_000;
const ELSEWHERE = 'was used in another browser';

const ASK_AGAIN = 'continue the conversation without a message, and it gives you a new link';

/** The sign-ins of users to MCP servers: OAuth 2.1 as MCP uses it ("Authorization"). */
export class SignIns {
  readonly grants: Grants;
  readonly urls: SignInsOptions['urls'];
  readonly #options: SignInsOptions;
  readonly #now: () => number;
  readonly #fetches: { plain: Fetch; guarded: Fetch };
  readonly #close: () => Promise<unknown>;

  constructor(options: SignInsOptions) {
    const { catalog, registry, now = Date.now, responseTimeoutMs = 10_000 } = options;
    const agents = {
      plain: createAgent({ connectTimeoutMs: responseTimeoutMs }),
      guarded: createAgent({ connectTimeoutMs: responseTimeoutMs, refuses: isPrivateAddress }),
    };
    const limited = (agent: typeof agents.plain): Fetch => {
      const fetch = createFetch(agent, BOUNDS);
      return async (url, init) => {
        const response = await fetch(url, { ...init, signal: AbortSignal.timeout(responseTimeoutMs) });
        const { status, headers } = response;
        // The SDK reads errors only from Node's own Response, which is another class than undici's.
        return new Response((await response.text()) || null, { status, headers: Object.fromEntries(headers) });
      };
    };
    this.urls = options.urls;
    this.#options = options;
    this.#now = now;
    this.#fetches = { plain: limited(agents.plain), guarded: limited(agents.guarded) };
    this.#close = () => Promise.all([agents.plain.destroy(), agents.guarded.destroy()]);
    this.grants = new Grants({ catalog, registry, now, fetchFor: (server) => this.#fetchFor(server) });
  }

  async close(): Promise<void> {
    await this.#close();
  }

  /**
   * Requests a sign-in of the session's owner for a turn. A turn that requests it again gets the same sign-in.
   * @throws McpServerError if no sign-in to the server is possible
   */
  async request(
    { endpoint, challenge, replaces }: SignInNeed,
    scope: ToolScope,
    turnId: string,
  ): Promise<ServerSignIn> {
    const { catalog } = this.#options;
    const { id, name, url, trusted } = endpoint;
    const ours = this.urls;
    if (!ours) throw new McpServerError(NO_PUBLIC_URL);
    const server = serverKey(endpoint);
    const signInTo = (signInId: string, state: string): ServerSignIn => {
      return { id, name, signInId, authUrl: ours.authorize(state) };
    };
    const now = this.#now();
    const known = await catalog.mcpSignIns.requested({ turnId, server }, isoTime(now + MIN_LEFT_MS));
    if (known) return signInTo(known.id, dataOf(known).state);
    const target = await discoverTarget(endpoint, challenge, this.#fetchFor(endpoint)).catch((error: unknown) => {
      throw new McpServerError(failureReason(error), { cause: error });
    });
    const state = randomBytes(32).toString('base64url');
    const data: SignInData = { state, server: { id, name, url, trusted }, target };
    const signInId = sha256(state);
    await catalog.mcpSignIns.insert({
      id: signInId,
      turn_id: turnId,
      subject_id: scope.owner.subjectId,
      server,
      status: 'requested',
      data: JSON.stringify(data),
      replaces: replaces ?? null,
      created_at: isoTime(now),
      expires_at: isoTime(now + VALID_MS),
    });
    return signInTo(signInId, state);
  }

  /** Whether the user has declined a sign-in. */
  async isDeclined(signInId: string): Promise<boolean> {
    return (await this.#options.catalog.mcpSignIns.status(signInId)) === 'declined';
  }

  /**
   * The sign-in of the link with this `state`. `subjectId`: the caller, if the request has a key.
   * @throws SignInError
   */
  async offer(state: string, subjectId: string | undefined): Promise<OfferedSignIn> {
    const row = await this.#findOpen(state, subjectId);
    const { server, target } = dataOf(row);
    const { agentName: agent, subject_id: id, subjectSlug: slug } = row;
    const { issuer } = target.server;
    return { server, issuer, scopes: target.scope?.split(' ') ?? [], agent, owner: { id, slug } };
  }

  /** Ends a sign-in that the user declines. @throws SignInError */
  async decline(state: string, subjectId: string | undefined, browser: string): Promise<EndedSignIn> {
    const row = await this.#findOpen(state, subjectId);
    if (isBoundElsewhere(row, browser)) throw await this.#replace(row, ELSEWHERE);
    const { mcpSignIns } = this.#options.catalog;
    if (!(await mcpSignIns.change(row.id, ['requested', 'exchanging'], 'declined'))) throw ended();
    return { status: 'declined', server: dataOf(row).server.name, isAwaited: row.isAwaited };
  }

  /**
   * The URL at which the user signs in. The first call binds the link to the `browser`: no other browser can finish or
   * restart the sign-in, so that no other user can be tricked into finishing it (RFC 9700, section 4.7).
   * @throws SignInError
   */
  async begin(state: string, subjectId: string | undefined, browser: string): Promise<string> {
    const { catalog } = this.#options;
    const row = await this.#findOpen(state, subjectId);
    if (isBoundElsewhere(row, browser)) throw await this.#replace(row, ELSEWHERE);
    if (row.redirects >= MAX_REDIRECTS) throw await this.#replace(row, 'was used too often');
    const data = dataOf(row);
    const { server } = data;
    try {
      const ours = this.urls;
      if (!ours) throw new McpServerError('cannot be used, because EVERTURN_PUBLIC_URL is not set');
      const { redirectUri } = ours;
      const own = this.#options.registry.clientOf(server);
      const client = own ?? (await this.#client(data, ours));
      const nonce = randomBytes(16).toString('base64url');
      const request = { client, redirectUri, state: `${row.id}.${nonce}` };
      const { url, codeVerifier } = await authorizationUrl(data.target, request);
      const visit = { nonce, browser: sha256(browser), begunAt: this.#now(), redirectUri, codeVerifier };
      const flow: Flow = { ...visit, ...(!own && { client }) };
      if (await catalog.mcpSignIns.redirect(row, JSON.stringify({ ...data, flow }))) return url;
    } catch (error) {
      throw this.#failed(error, data);
    }
    // A concurrent request has changed the sign-in: it may have bound or ended the link.
    return this.begin(state, subjectId, browser);
  }

  /**
   * Ends a sign-in with the response of the authorization server. A repeated response has the same result.
   * @throws SignInError
   */
  async finish(
    { state, code, iss, error }: AuthorizationResponse,
    subjectId: string | undefined,
    browser: string | undefined,
  ): Promise<EndedSignIn> {
    const { catalog, registry } = this.#options;
    const [id = '', nonce] = state.split('.');
    const row = await this.#find(id, subjectId);
    const data = dataOf(row);
    const { server, target, flow } = data;
    const { isAwaited } = row;
    if (!flow || this.#now() - flow.begunAt > VALID_MS) throw notFound();
    try {
      if (flow.nonce !== nonce) {
        throw new McpServerError('was asked again in the meantime: open the link of the conversation again');
      }
      if (browser === undefined || flow.browser !== sha256(browser)) {
        throw new McpServerError('was asked from another browser: open the link of the conversation in this one');
      }
      if (row.status === 'replaced') throw replaced(row);
      if (row.status === 'granted' || row.status === 'declined') {
        return { status: row.status, server: server.name, isAwaited };
      }
      // Checked before any other field, since another authorization server may have sent the response (RFC 9207).
      validateAuthorizationResponseIssuer({
        iss,
        expectedIssuer: target.server.issuer,
        issParameterSupported: target.server.authorization_response_iss_parameter_supported === true,
      });
      if (error === 'access_denied') {
        await catalog.mcpSignIns.change(row.id, ['requested'], 'declined');
        return { status: 'declined', server: server.name, isAwaited };
      }
      if (error !== undefined) throw new McpServerError(`did not let you sign in: ${error.slice(0, 100)}`);
      if (code === undefined) throw new McpServerError('sent neither a code nor an error');
      const client = flow.client ?? registry.clientOf(server);
      if (!client) throw new McpServerError('is not registered any more');
      if (!(await catalog.mcpSignIns.change(row.id, ['requested'], 'exchanging'))) {
        throw new McpServerError('is already being asked for this: open the link of the conversation again');
      }
      const now = this.#now();
      const fetch = this.#fetchFor(server);
      const { tokens, account } = await exchangeCode(target, { ...flow, client, code, iss }, { fetch, now }).catch(
        async (reason: unknown) => {
          // A visit in another window may still deliver a valid code.
          await catalog.mcpSignIns.change(row.id, ['exchanging'], 'requested');
          throw reason;
        },
      );
      const named = account !== undefined && { account };
      const grant: GrantData = { server, target, ...(flow.client && { client: flow.client }), ...named };
      const isGranted = await catalog.mcpSignIns.grant(row.id, {
        id: ulid('con', now, () => randomInt(DIGITS)),
        subject_id: row.subject_id,
        server: row.server,
        data: JSON.stringify(grant),
        tokens: JSON.stringify(tokens),
        created_at: isoTime(now),
      });
      if (!isGranted) throw new McpServerError('is being asked again');
      return { status: 'granted', server: server.name, isAwaited, ...named };
    } catch (thrown) {
      throw this.#failed(thrown, data);
    }
  }

  /** The grants of a subject after the id `after`, oldest first. */
  async connections(subjectId: string, after: string, limit: number): Promise<Grant[]> {
    return (await this.#options.catalog.mcpGrants.list(subjectId, after, limit)).map(grantOf);
  }

  /** Ends a grant of the subject, also at the authorization server if possible. Returns false if there is none. */
  async revoke(subjectId: string, id: string): Promise<boolean> {
    const { catalog, registry, log } = this.#options;
    const row = await catalog.mcpGrants.take(subjectId, id);
    if (!row) return false;
    const { server, target, tokens, client = registry.clientOf(server) } = grantOf(row);
    try {
      if (client) await revokeTokens(target, { client, tokens }, this.#fetchFor(server));
    } catch (error) {
      const { issuer } = target.server;
      log.warn({ issuer, reason: failureReason(error) }, 'a grant was removed, but could not be revoked at its issuer');
    }
    return true;
  }

  /** The OAuth client of this server at an authorization server for which the operator has configured none. */
  async #client({ server, target, flow }: SignInData, urls: SignInUrls): Promise<OAuthClient> {
    const { redirectUri, clientMetadata } = urls;
    if (flow?.client && flow.redirectUri === redirectUri) return flow.client;
    const readsMetadata = target.server.client_id_metadata_document_supported === true;
    if (readsMetadata && clientMetadata.startsWith('https:')) return { client_id: clientMetadata };
    return registerAt(target.server, redirectUri, this.#fetchFor(server));
  }

  /** The sign-in of a link, if it has not ended. @throws SignInError */
  async #findOpen(state: string, subjectId: string | undefined): Promise<OpenedSignIn> {
    const row = await this.#find(sha256(state), subjectId);
    if (row.status === 'granted' || row.status === 'declined') throw ended();
    if (row.status === 'replaced') throw replaced(row);
    return row;
  }

  /** Ends a link that can no longer be used. Returns the error for the user. @throws SignInError */
  async #replace(row: OpenedSignIn, reason: string): Promise<SignInReplacedError> {
    const { mcpSignIns } = this.#options.catalog;
    const since = isoTime(this.#now() - REPLACED_MS);
    if ((await mcpSignIns.replacedSince(row, since)) >= MAX_REPLACED) {
      throw new SignInError(
        'sign_in_failed',
        `this link ${reason}, as were the ${MAX_REPLACED} before it: open it again in 10 minutes`,
      );
    }
    if (!(await mcpSignIns.change(row.id, ['requested', 'exchanging'], 'replaced'))) throw ended();
    this.#options.log.warn({ turnId: row.turn_id, reason }, 'the link of a sign-in has ended, and is replaced');
    return new SignInReplacedError(reason, row);
  }

  /** @throws SignInError */
  async #find(id: string, subjectId: string | undefined): Promise<OpenedSignIn> {
    const row = await this.#options.catalog.mcpSignIns.find(id);
    if (!row || (subjectId !== undefined && row.subject_id !== subjectId)) throw notFound();
    const isExpired = isoTime(this.#now()) >= row.expires_at;
    const isAwaited = await this.#isAwaited(row, isExpired);
    // A turn that waits issues no other link, so its link does not expire.
    if (!isAwaited && isExpired) throw notFound();
    return { ...row, isAwaited };
  }

  /** Whether the turn waits. Reads the log, too: the catalog follows it with a delay, and the user may be faster. */
  async #isAwaited({ turn_id: turnId, turnState }: FoundSignIn, isExpired: boolean): Promise<boolean> {
    if (!isOpenTurnState(turnState)) return false;
    if (WAITING.has(turnState)) return true;
    const turn = await unlessNotFound(this.#options.logs.currentRun(turnId)).catch((error: unknown) => {
      // Before its expiry, the link is valid in either case.
      if (isTemporalUnavailable(error) && !isExpired) return undefined;
      throw error;
    });
    return turn !== undefined && WAITING.has(turn.state);
  }

  #failed(error: unknown, { server, target }: SignInData): SignInError {
    if (error instanceof SignInError) return error;
    const reason = failureReason(error);
    this.#options.log.warn({ mcpServer: server.id, issuer: target.server.issuer, reason }, 'a sign-in failed');
    const message = `the authorization server of ${JSON.stringify(server.name)} ${reason}`;
    return new SignInError('sign_in_failed', message, { cause: error });
  }

  #fetchFor({ trusted }: { trusted: boolean }): Fetch {
    const { plain, guarded } = this.#fetches;
    return trusted || this.#options.allowPrivateUrls() ? plain : guarded;
  }
}

function notFound(): SignInError {
  return new SignInError('sign_in_not_found', `this sign-in does not exist or has expired: ${ASK_AGAIN}`);
}

function replaced(row: OpenedSignIn): SignInError {
  return new SignInReplacedError(`${ELSEWHERE} or too often`, row);
}

function isBoundElsewhere(row: SignInRow, browser: string): boolean {
  const { flow } = dataOf(row);
  return flow !== undefined && flow.browser !== sha256(browser);
}

function ended(): SignInError {
  return new SignInError('sign_in_not_found', `this sign-in has ended: ${ASK_AGAIN}`);
}

/** Metadata and tokens take some KiB. */
const BOUNDS = { maxBytes: 256 * 1024 };

function dataOf({ data }: SignInRow): SignInData {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by this class
  return JSON.parse(data) as SignInData;
}
