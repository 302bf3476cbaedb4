import type { Tool } from '@modelcontextprotocol/client';
import { LRUCache } from 'lru-cache';
import { pino, type Logger } from 'pino';
import type { Agent } from 'undici';
import type { CallResponse } from './call-outcome.ts';
import { withClientCredentials } from './client-credentials.ts';
import type { ConnectedAccount } from '../core/records/servers.ts';
import { ConnectionLostError } from './errors.ts';
import { HiddenCredentials, type Hide } from './hidden-credentials.ts';
import { trackRequestSent } from './exchange.ts';
import { failureReason } from './failure-reason.ts';
import {
  serverKey,
  signedIn,
  signInRequired,
  takesSignIn,
  type ServerGrants,
  type SignInNeed,
} from './sign-in-required.ts';
import { availableBytes } from '../lib/available-bytes.ts';
import { createAgent, createFetch, type Fetch } from '../lib/guarded-fetch.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { isPrivateAddress } from '../lib/private-address.ts';
import type { ToolScope } from '../core/history.ts';
import type { CallOptions, McpConnection } from './connection.ts';
import { OpenConnections } from './open-connections.ts';
import type { ProgramRecords } from './program-records.ts';
import { Patience } from './patient-flight.ts';
import { PooledServer } from './pooled-server.ts';
import type { HttpEndpoint, McpEndpoint, StdioEndpoint } from './registry.ts';
import { ScopedConnection } from './scoped-connection.ts';
import { SessionUses, type WatchSession } from './session-uses.ts';
import { DEFAULT_STREAM_LIMITS, StreamBudget, type McpStreamLimits } from './stream-budget.ts';
import type { ServerTransport } from './transport.ts';
import { NamedError } from '../lib/errors.ts';

export interface McpPoolOptions extends Partial<McpStreamLimits> {
  /** Whether untrusted servers may currently be at private addresses. */
  allowPrivateUrls: () => boolean;
  /** The access of subjects to servers that they signed in to; without it users cannot sign in. */
  grants?: ServerGrants;
  /** Watches the sessions that use connections, which end with them; without it they end when they are idle. */
  watchSession?: WatchSession;
  /** Receives the standard error of the programs that run as servers. */
  log?: Logger;
  /** Where running programs are recorded; without it, a crash may leave them running. */
  programs?: ProgramRecords;
  /** Whether a call of one of the sessions waits for a person: their connections are not closed for being idle. */
  areAwaited?: (sessionIds: string[]) => Promise<boolean>;
  /** Whether calls that rely on state are sent elsewhere: no connection is kept for it, and each is closed after `idleMs`. */
  onlyLists?: boolean;
  /** For connecting and the handshake of a server over HTTP, and for each page of a list of tools. */
  responseTimeoutMs?: number;
  /** For a program to write anything, while it starts or is being installed; a registration may set another time. */
  startTimeoutMs?: number;
  /** For the handshake of a program, from its first output on. */
  handshakeTimeoutMs?: number;
  /** How long the first callers wait for a server that has not responded yet; later ones do not wait for it. */
  firstWaitMs?: number;
  /** How long a list of tools is reused. */
  listMaxAgeMs?: number;
  /** A connection that is idle for this long is closed; a registration may set another time. */
  idleMs?: number;
  /** Maximum number of connections over HTTP: each may occupy a socket for the server's notifications. */
  maxConnections?: number;
  /** Maximum number of running programs: each is one process or more, of 70 to 250 MB on Node without a browser. */
  maxPrograms?: number;
  /** The memory that running programs may take together, in bytes. Default: half of the memory of the machine or container. */
  maxProgramBytes?: number;
  /** A monotonic clock in milliseconds. */
  now?: () => number;
}

/** Images take a few MiB of a message; text is cut for the model far below this size. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

const MAX_GRANT_IDS = 10_000;

const MAX_PATIENCE = 10_000;

/** More at once would slow each other down, and the turns that run. */
const STARTS_AT_ONCE = 4;

/** A connected server, as `mcp.initialize` records it, and its tools. */
export interface McpServerTools {
  id: string;
  name: string;
  /** Null if there is none, or if it is shared with other sessions: knowing the id gives access to the session. */
  sessionId: string | null;
  transport: ServerTransport['kind'];
  /** The version of the protocol that both sides speak. */
  protocol: string;
  /** Absent without a sign-in. */
  account?: ConnectedAccount;
  tools: Tool[];
  /** What was left out or repaired of the list of tools, for the operator. */
  toolWarnings: readonly string[];
  /** The server's instructions for their use. */
  instructions: string;
}

/** The tools of a server are currently unavailable. The message contains the reason, for a model or an operator. */
export class McpUnavailableError extends NamedError {
  /** The message without the server's name, as a predicate that continues after it. */
  readonly reason: string;
  /** Set if the user has to sign in to the server first. */
  readonly signIn: SignInNeed | undefined;

  constructor(
    server: string,
    { reason, cause, signIn }: { reason: string; cause: unknown; signIn?: SignInNeed | undefined },
  ) {
    super(named(server, reason), { cause });
    this.reason = reason;
    this.signIn = signIn;
  }
}

/**
 * Connections to MCP servers (protocol 2026-07-28, or 2025-11-25 and older), over HTTP or to programs that are started
 * on first use. All callers with the same access (URL and headers, or command) share a connection; if it has state at
 * the server, only those of one scope do: see `ConnectionIsolation`. A server to which users sign in has separate
 * connections, and so separate lists of tools, for each grant; one with credentials of a run has them for each run.
 */
export class McpPool {
  readonly #options: Required<Omit<McpPoolOptions, 'grants' | 'watchSession' | 'programs' | 'areAwaited'>> &
    Pick<McpPoolOptions, 'grants' | 'programs' | 'areAwaited'>;
  readonly #uses: SessionUses | undefined;
  /** The grants that were last used, by subject and server. */
  readonly #grantIds = new LRUCache<string, string>({ max: MAX_GRANT_IDS });
  readonly #servers = new Map<string, PooledServer>();
  /** By server, for all callers: an entry outlives those of `#servers`. */
  readonly #patience = new LRUCache<string, Patience>({ max: MAX_PATIENCE });
  readonly #open: { http: OpenConnections; programs: OpenConnections };
  #isClosed = false;
  readonly #agents: Agent[];
  readonly #fetches: { plain: Fetch; guarded: Fetch };

  constructor({ watchSession, ...options }: McpPoolOptions) {
    this.#uses = watchSession && new SessionUses(watchSession);
    this.#options = {
      log: pino({ enabled: false }),
      responseTimeoutMs: 10_000,
      startTimeoutMs: 300_000,
      handshakeTimeoutMs: 30_000,
      firstWaitMs: 30_000,
      listMaxAgeMs: 60_000,
      idleMs: 300_000,
      onlyLists: false,
      maxConnections: 500,
      maxPrograms: 50,
      maxProgramBytes: availableBytes() / 2,
      ...DEFAULT_STREAM_LIMITS,
      now: () => performance.now(),
      ...options,
    };
    this.#open = {
      http: new OpenConnections({ max: this.#options.maxConnections }),
      programs: new OpenConnections({ max: this.#options.maxPrograms, maxBytes: this.#options.maxProgramBytes }),
    };
    const connectTimeoutMs = this.#options.responseTimeoutMs;
    const plain = createAgent({ connectTimeoutMs });
    const guarded = createAgent({ connectTimeoutMs, refuses: isPrivateAddress });
    const bounds = { maxBytes: MAX_MESSAGE_BYTES };
    this.#agents = [plain, guarded];
    this.#fetches = {
      plain: createFetch(plain.compose(trackRequestSent), bounds),
      guarded: createFetch(guarded.compose(trackRequestSent), bounds),
    };
  }

  /** @throws McpUnavailableError, or the reason of the signal. */
  async tools(endpoint: McpEndpoint, scope: ToolScope, signal: AbortSignal): Promise<McpServerTools> {
    const { id, name } = endpoint;
    try {
      return await this.#asSubject(endpoint, scope, signal, async (connection, grantId) => {
        const tools = await connection.tools(signal);
        const account = grantId === undefined ? undefined : await this.#options.grants?.account(grantId);
        const sessionId = endpoint.isolation === 'session' ? connection.sessionId : null;
        const { transport, protocol, toolWarnings, instructions } = connection;
        const server = { id, name, sessionId, transport, protocol, ...(account && { account }) };
        return { ...server, tools, toolWarnings, instructions };
      });
    } catch (error) {
      signal.throwIfAborted();
      const reason = failureReason(error, this.#hideOf(endpoint, scope));
      throw new McpUnavailableError(name, { reason, cause: error, signIn: needOf(endpoint, error) });
    }
  }

  /** Calls a tool at most once, unless the server itself reports that it has not executed the call. Never throws. */
  async call(
    endpoint: McpEndpoint,
    scope: ToolScope,
    tool: string,
    args: Record<string, unknown>,
    options: CallOptions,
  ): Promise<CallResponse> {
    const { name } = endpoint;
    try {
      const work = async (connection: McpConnection): Promise<CallResponse> => {
        if (endpoint.stateful === false || !connection.keepsState) return connection.call(tool, args, options);
        if ([...(options.reliesOn ?? [])].some((id) => id !== connection.id)) return { status: 'replaced' };
        const response = await connection.call(tool, args, options);
        const isSent = response.status === 'result' || response.status === 'rejected' || response.status === 'unknown';
        return isSent ? { ...response, connection: { serverId: endpoint.id, id: connection.id } } : response;
      };
      const outcome = await this.#asSubject(endpoint, scope, options.signal, work);
      return 'message' in outcome ? { ...outcome, message: named(name, outcome.message) } : outcome;
    } catch (error) {
      if (options.signal.aborted) {
        return { status: 'not_sent', message: named(name, 'had not received the call when it was cancelled') };
      }
      const message = named(name, failureReason(error, this.#hideOf(endpoint, scope)));
      const signIn = needOf(endpoint, error);
      return signIn ? { status: 'sign_in_required', message, signIn } : { status: 'not_sent', message };
    }
  }

  /** Starts programs before they are needed, a few at a time. A program that cannot be used is logged. Never rejects. */
  async startPrograms(endpoints: readonly StdioEndpoint[]): Promise<void> {
    const places = new KeyedSemaphore(STARTS_AT_ONCE);
    await Promise.all(endpoints.map((endpoint) => places.run('', () => this.#startProgram(endpoint))));
  }

  async #startProgram(endpoint: StdioEndpoint): Promise<void> {
    const server = this.#server(endpoint, undefined);
    try {
      await server.begin();
    } catch (error) {
      if (this.#isClosed) return;
      const reason = failureReason(error, server.credentials.hide);
      this.#options.log.warn({ mcpServer: endpoint.id }, named(endpoint.name, reason));
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([this.#open.http.close(), this.#open.programs.close()]);
    await Promise.all(this.#agents.map((agent) => agent.destroy()));
  }

  /** Closes the connections of a grant that was revoked, as soon as they are unused. */
  endGrant(grantId: string): void {
    for (const server of this.#servers.values()) if (server.grantId === grantId) server.retire();
  }

  /**
   * Runs `work` with the grant of the scope's subject, if the server requires one. The catalog is read only if the server
   * rejects a request, so servers without sign-ins cost nothing.
   */
  async #asSubject<T>(
    endpoint: McpEndpoint,
    scope: ToolScope,
    signal: AbortSignal,
    work: (connection: McpConnection, grantId: string | undefined) => Promise<T>,
  ): Promise<T> {
    const { grants } = this.#options;
    if (!grants || !takesSignIn(endpoint)) return this.#withConnection(endpoint, undefined, scope, signal, work);
    const { subjectId } = scope.owner;
    const key = grantKey(endpoint, scope);
    const used = this.#grantIds.get(key);
    try {
      return await this.#withConnection(endpoint, used, scope, signal, work);
    } catch (error) {
      if (!signInRequired(error)) throw error;
      const current = await grants.find(subjectId, endpoint);
      if (current === undefined) this.#grantIds.delete(key);
      else this.#grantIds.set(key, current);
      // Without a grant, the response of the server contains what it requires.
      if (current === used) throw error;
      return this.#withConnection(endpoint, current, scope, signal, work);
    }
  }

  /** Hides the credentials of the connections that a scope has used last. */
  #hideOf(endpoint: McpEndpoint, scope: ToolScope): Hide | undefined {
    const grantId = takesSignIn(endpoint) ? this.#grantIds.get(grantKey(endpoint, scope)) : undefined;
    return this.#server(endpoint, grantId).credentials.hide;
  }

  /** Runs `work`, and repeats it once with a new connection if the connection was lost. */
  async #withConnection<T>(
    endpoint: McpEndpoint,
    grantId: string | undefined,
    scope: ToolScope,
    signal: AbortSignal,
    work: (connection: McpConnection, grantId: string | undefined) => Promise<T>,
    isLastTry = false,
  ): Promise<T> {
    const connection = await this.#server(endpoint, grantId).connection(scope, signal);
    this.#openOf(endpoint).touch(connection);
    this.#uses?.add(connection, scope.sessionId);
    try {
      return await work(connection, grantId);
    } catch (error) {
      const required = signInRequired(error);
      const isGrantOver = grantId !== undefined && required !== undefined && required.replaces === undefined;
      if (!(error instanceof ConnectionLostError || isGrantOver)) throw error;
      connection.retire();
      if (isLastTry || isGrantOver) throw error;
      return this.#withConnection(endpoint, grantId, scope, signal, work, true);
    }
  }

  #server(endpoint: McpEndpoint, grantId: string | undefined): PooledServer {
    const isGuarded = 'url' in endpoint && !endpoint.trusted && !this.#options.allowPrivateUrls();
    const key = JSON.stringify([accessTo(endpoint), isGuarded, grantId]);
    const known = this.#servers.get(key);
    if (known) return known;
    for (const [other, { isUnused }] of this.#servers) if (isUnused) this.#servers.delete(other);
    const credentials = new HiddenCredentials(endpoint);
    const { idleMs, onlyLists, startTimeoutMs, log } = this.#options;
    const options = {
      ...this.#options,
      idleMs: onlyLists ? Math.min(idleMs, endpoint.idleMs ?? idleMs) : (endpoint.idleMs ?? idleMs),
      startTimeoutMs: ('command' in endpoint ? endpoint.startTimeoutMs : undefined) ?? startTimeoutMs,
      isAwaited: (connection: McpConnection) => this.#isAwaited(connection),
      maxMessageBytes: MAX_MESSAGE_BYTES,
      fetch: this.#fetch(endpoint, { isGuarded, grantId, credentials }),
      credentials,
    };
    const { id, name } = endpoint;
    const onRefused = ({ message }: Error): void => log.warn({ mcpServer: id }, named(name, message));
    const pending = 'command' in endpoint ? 'is still starting' : 'has not answered yet';
    const patience = this.#patienceFor(endpoint, key);
    const create = (): ScopedConnection => {
      const budget = new StreamBudget({ ...options, onRefused });
      const open = () => this.#openOf(endpoint).open(endpoint, { ...options, budget });
      return new ScopedConnection({ open, budget, pending, patience });
    };
    const server = new PooledServer(endpoint, { create, grantId, credentials });
    this.#servers.set(key, server);
    return server;
  }

  /** The patience of an unregistered server is its own: its subject could otherwise make others wait, or not wait. */
  #patienceFor(endpoint: McpEndpoint, key: string): Patience {
    const isRegistered = 'command' in endpoint || endpoint.trusted;
    const server = isRegistered ? endpoint.id : key;
    const known = this.#patience.get(server);
    const patience = known ?? new Patience(this.#options);
    if (!known) this.#patience.set(server, patience);
    return patience;
  }

  /** If it is unknown, the connection is kept: closing it could lose what a person is about to allow. */
  async #isAwaited(connection: McpConnection): Promise<boolean> {
    const sessions = this.#uses?.of(connection) ?? [];
    const { areAwaited, onlyLists } = this.#options;
    if (onlyLists || !areAwaited || sessions.length === 0) return false;
    try {
      return await areAwaited(sessions);
    } catch (error) {
      this.#options.log.warn({ err: error }, 'cannot look for calls that wait for a person; a connection is kept');
      return true;
    }
  }

  #openOf(endpoint: McpEndpoint): OpenConnections {
    return 'command' in endpoint ? this.#open.programs : this.#open.http;
  }

  #fetch(
    endpoint: McpEndpoint,
    {
      isGuarded,
      grantId,
      credentials: hidden,
    }: { isGuarded: boolean; grantId: string | undefined; credentials: HiddenCredentials },
  ): Fetch {
    const { plain, guarded } = this.#fetches;
    const { grants, responseTimeoutMs, now } = this.#options;
    if ('url' in endpoint && endpoint.auth?.type === 'client_credentials') {
      const { url, auth } = endpoint;
      return withClientCredentials(hidden.noting(plain), url, auth, { fetch: plain, responseTimeoutMs, now });
    }
    const fetch = hidden.noting(isGuarded ? guarded : plain);
    if (!grants || !takesSignIn(endpoint)) return fetch;
    const hasFixedScopes = endpoint.auth?.type === 'authorization_code' && endpoint.auth.scope !== undefined;
    return signedIn(fetch, grantId === undefined ? undefined : grants.tokensOf(grantId), !hasFixedScopes);
  }
}

/** Names the grant of a scope's subject for a server. */
function grantKey(endpoint: HttpEndpoint, { owner }: ToolScope): string {
  return JSON.stringify([owner.subjectId, serverKey(endpoint)]);
}

/** The sign-in that an error requires. */
function needOf(endpoint: McpEndpoint, error: unknown): SignInNeed | undefined {
  const required = signInRequired(error);
  if (!required || !takesSignIn(endpoint)) return undefined;
  const { challenge, replaces } = required;
  return { endpoint, challenge, ...(replaces !== undefined && { replaces }) };
}

function named(server: string, reason: string): string {
  return `MCP server ${JSON.stringify(server)} ${reason}`;
}

/** The properties that identify a server; agents may give it different names. */
function accessTo(endpoint: McpEndpoint): unknown {
  if ('command' in endpoint) {
    const { id, command, args, env, cwd, isolation } = endpoint;
    return { id, command, args, env, cwd, isolation };
  }
  const { url, headers, auth, isolation, credentialsOf, idleMs, protocol } = endpoint;
  return { url, headers, auth, isolation, credentialsOf, idleMs, protocol };
}
