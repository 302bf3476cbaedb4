import { sha256 } from '../lib/hash.ts';
import { credentialsIn, registerSecrets } from '../lib/redact.ts';
import type { McpServer } from '../spec/agent-spec.ts';
import {
  parseServer,
  readRegistryFile,
  type AuthorizationCodeConfig,
  type ClientCredentialsConfig,
  type EnvironmentKind,
  type ConnectionIsolation,
  type RegisteredServer,
  type RegistryFile,
} from './registry-file.ts';
import type { OAuthClient } from './oauth-client.ts';
import { NO_POLICY, type ServerPolicy } from './server-policy.ts';

/** An MCP server: its address, and its configuration on this side. */
export type McpEndpoint = HttpEndpoint | StdioEndpoint;

interface Endpoint {
  /** Stable for the same server: the name of a registered one, a digest of the URL of an inline one. */
  id: string;
  /** Its name in the agent. */
  name: string;
  /** Tools that may run again with the same operation id: `@all` or names. */
  idempotentTools: readonly string[];
  isolation: ConnectionIsolation;
  /** Its calls run in the order of their message: see `heldCalls`. Default: they run at once. */
  ordered?: boolean;
  /** False: calls do not rely on what the server keeps for a connection. */
  stateful?: boolean;
  /** How long a call may take without a response or progress, if that is less than any call may. */
  timeoutMs?: number | undefined;
  /** A connection that is idle for this long is closed. */
  idleMs?: number | undefined;
  /** The only version of the protocol that is spoken with it. */
  protocol?: string | undefined;
}

export interface HttpEndpoint extends Endpoint {
  url: string;
  headers: Record<string, string>;
  /** How the bearer token for its requests is obtained. Without it, users can sign in. */
  auth?: ClientCredentialsConfig | AuthorizationCodeConfig | undefined;
  /** Registered by the operator, so it may be at a private address. */
  trusted: boolean;
  /**
   * The session whose client has given some of the headers. No response of the server is used for another session, and
   * users do not sign in to it.
   */
  credentialsOf?: string | undefined;
}

/** A program that the operator registered, run on this machine. */
export interface StdioEndpoint extends Endpoint {
  command: string;
  args: string[];
  /** In addition to the few variables that every program needs. */
  env: Record<string, string>;
  cwd?: string | undefined;
  /** How long it may start, or be installed, until it writes anything. */
  startTimeoutMs?: number | undefined;
}

/** The MCP servers that agents may name instead of giving a URL. */
export class McpRegistry {
  readonly #servers: RegistryFile['servers'];
  /** The names of servers that the file has, but disables. */
  readonly disabled: readonly string[];
  /** Entries of the file of the servers that have no effect, for the log. */
  readonly warnings: readonly string[];

  constructor({ servers, disabled, warnings }: RegistryFile = { servers: new Map(), disabled: [], warnings: [] }) {
    this.#servers = servers;
    this.disabled = disabled;
    this.warnings = warnings;
  }

  get names(): string[] {
    return [...this.#servers.keys()];
  }

  /** @throws z.ZodError */
  add(name: string, server: RegisteredServer): void {
    this.#servers.set(name, parseServer(server));
  }

  /** Resolves an agent's server to its endpoint; undefined if no server is registered under that name. */
  resolve(spec: McpServer): McpEndpoint | undefined {
    const { name } = spec;
    if (spec.type === 'inline') {
      const id = `inline-${sha256(spec.url).slice(0, 16)}`;
      return { id, name, url: spec.url, headers: {}, trusted: false, idempotentTools: [], isolation: 'session' };
    }
    const server = this.#servers.get(name);
    if (!server) return undefined;
    const { idempotent_tools: idempotentTools, isolation, ordered, stateful, timeout: timeoutMs } = server;
    const { idle_seconds: idle, protocol } = server;
    const endpoint = {
      id: name,
      name,
      idempotentTools,
      isolation,
      ordered,
      ...(!stateful && { stateful }),
      ...(timeoutMs !== undefined && { timeoutMs }),
      ...(idle !== undefined && { idleMs: idle * 1000 }),
      ...(protocol !== undefined && { protocol }),
    };
    if ('url' in server) {
      const { url, headers, auth } = server;
      return { ...endpoint, url, headers, auth, trusted: true };
    }
    const { command, args, env, cwd, start_timeout_seconds: start } = server;
    return { ...endpoint, command, args, env, cwd, ...(start !== undefined && { startTimeoutMs: start * 1000 }) };
  }

  /** The programs among the servers. */
  get programs(): StdioEndpoint[] {
    return this.names.flatMap((name) => {
      const endpoint = this.resolve({ type: 'truefoundry-mcp-registry', name });
      return endpoint && 'command' in endpoint ? [endpoint] : [];
    });
  }

  /** The client with which users sign in to a registered server; undefined if the operator has configured none. */
  clientOf({ id, url }: Pick<HttpEndpoint, 'id' | 'url'>): OAuthClient | undefined {
    const server = this.#servers.get(id);
    if (!server || !('url' in server) || server.url !== url || server.auth?.type !== 'authorization_code')
      return undefined;
    const { client_id: clientId, client_secret: secret } = server.auth;
    return { client_id: clientId, ...(secret !== undefined && { client_secret: secret }) };
  }

  /** The name of the server that provides the environments of a kind; undefined if there is none. */
  environmentServer(kind: EnvironmentKind): string | undefined {
    const [name] = [...this.#servers].find(([, { environments }]) => environments.includes(kind)) ?? [];
    return name;
  }

  /** The operator's policy for an agent's server. */
  policy({ type, name }: McpServer): ServerPolicy {
    const server = type === 'inline' ? undefined : this.#servers.get(name);
    if (!server) return NO_POLICY;
    const { drafts, tools, require_approval_for_tools: approval } = server;
    return { drafts, tools, approval };
  }
}

/** @throws ConfigError if the file cannot be read or is invalid */
export async function loadMcpRegistry(
  file: string | undefined,
  env: NodeJS.ProcessEnv = process.env,
): Promise<McpRegistry> {
  if (file === undefined) return new McpRegistry();
  const read = await readRegistryFile(file, env);
  registerSecrets([...read.servers.values()].flatMap(serverCredentials));
  return new McpRegistry(read);
}

/** The credentials of the operator for a server that it has registered. */
export function serverCredentials(
  server: Pick<StdioEndpoint, 'command' | 'env'> | Pick<HttpEndpoint, 'headers' | 'auth'>,
): string[] {
  if ('command' in server) return credentialsIn(server.env);
  // Header values are credentials in most cases, and the header's name does not show which are not.
  return [
    ...Object.values(server.headers),
    ...(server.auth?.client_secret !== undefined ? [server.auth.client_secret] : []),
  ];
}
