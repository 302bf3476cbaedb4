import type { ToolScope } from '../core/history.ts';
import type { McpConnection } from './connection.ts';
import type { HiddenCredentials } from './hidden-credentials.ts';
import type { McpEndpoint } from './registry.ts';
import type { ScopedConnection } from './scoped-connection.ts';

/** `create`: makes a connection that is opened when it is needed. */
type PooledServerOptions = Pick<PooledServer, 'grantId' | 'credentials'> & { create: () => ScopedConnection };

/**
 * A server and the connections to it. An HTTP server keeps state for a connection if its response to `initialize` has a
 * session id. A connection without state serves all scopes; one with state belongs to the scope that opened it, and
 * every other scope gets its own. Programs always have state.
 */
export class PooledServer {
  /** The grant that its connections use. */
  readonly grantId: string | undefined;
  readonly credentials: HiddenCredentials;
  readonly #endpoint: McpEndpoint;
  readonly #create: () => ScopedConnection;
  readonly #scoped = new Map<string, ScopedConnection>();
  /** Shared by all scopes, or not yet assigned to one. */
  #common: ScopedConnection;
  /** Started before any scope has needed it: it belongs to the first one that does. */
  #startedEarly: ScopedConnection | undefined;
  #keepsState: boolean;

  constructor(endpoint: McpEndpoint, { create, grantId, credentials }: PooledServerOptions) {
    this.grantId = grantId;
    this.credentials = credentials;
    this.#endpoint = endpoint;
    this.#create = create;
    this.#common = create();
    this.#keepsState = 'command' in endpoint;
  }

  /** Whether it has no state and can be dropped. */
  get isUnused(): boolean {
    return this.#all.every(({ isUnused }) => isUnused);
  }

  /** Closes its connections as soon as they are unused. */
  retire(): void {
    for (const connection of this.#all) connection.retire();
  }

  get #all(): ScopedConnection[] {
    return [this.#common, ...(this.#startedEarly ? [this.#startedEarly] : []), ...this.#scoped.values()];
  }

  /**
   * Opens a connection before one is needed, unless there is one.
   * @throws the error with which it could not be opened
   */
  async begin(): Promise<void> {
    if (!this.isUnused) return;
    const begun = this.#endpoint.isolation === 'shared' ? this.#common : (this.#startedEarly ??= this.#create());
    await begun.begin();
  }

  /** @throws the reason of the signal, or the error with which the connection could not be opened */
  async connection(scope: ToolScope, signal: AbortSignal): Promise<McpConnection> {
    const { isolation } = this.#endpoint;
    if (isolation === 'shared') return this.#common.get(signal);
    const key = isolation === 'session' ? scope.sessionId : scope.owner.subjectId;
    if (this.#keepsState || this.#scoped.get(key)?.isOpen) return this.#own(key, signal);
    const common = this.#common;
    const connection = await common.get(signal);
    if (!connection.keepsState) return connection;
    this.#keepsState = true;
    // Another scope took the connection first.
    if (this.#common !== common) return this.#own(key, signal);
    this.#common = this.#create();
    this.#scoped.set(key, common);
    return connection;
  }

  async #own(key: string, signal: AbortSignal): Promise<McpConnection> {
    const connection = await this.#scopedOf(key).get(signal);
    this.#keepsState = connection.keepsState;
    return connection;
  }

  #scopedOf(key: string): ScopedConnection {
    const known = this.#scoped.get(key);
    if (known) return known;
    for (const [other, { isUnused }] of this.#scoped) if (isUnused) this.#scoped.delete(other);
    const created = this.#startedEarly ?? this.#create();
    this.#startedEarly = undefined;
    this.#scoped.set(key, created);
    return created;
  }
}
