import { LRUCache } from 'lru-cache';
import type { McpConnection } from './connection.ts';

/** Calls `onDeleted` once the session is deleted, perhaps repeatedly, until the watch is disposed of. */
export type WatchSession = (sessionId: string, onDeleted: () => void) => Disposable;

/** A connection that more sessions use is not ended by deletions: it belongs to none of them, and closes when it is idle. */
const MAX_SESSIONS = 100;

/** How long the calls of deleted sessions, which their turns cancel, may keep a connection. */
const CALLS_GRACE_MS = 5_000;

/** Ends the connections that only deleted sessions have used: a server could send on them until they are idle for long. */
export class SessionUses {
  readonly #watch: WatchSession;
  readonly #uses = new WeakMap<Connection, Map<string, Disposable>>();
  readonly #shared = new WeakSet<Connection>();
  /** The sessions that have used each connection last. */
  readonly #recent = new WeakMap<Connection, LRUCache<string, true>>();

  constructor(watch: WatchSession) {
    this.#watch = watch;
  }

  /** Records that a session uses the connection. */
  add(connection: Connection, sessionId: string): void {
    const recent = this.#recent.get(connection) ?? new LRUCache({ max: MAX_SESSIONS });
    this.#recent.set(connection, recent.set(sessionId, true));
    if (!connection.takesCalls || this.#shared.has(connection)) return;
    const uses = this.#uses.get(connection) ?? this.#begin(connection);
    if (uses.has(sessionId)) return;
    if (uses.size === MAX_SESSIONS) {
      this.#shared.add(connection);
      forget(uses);
      return;
    }
    const watch = this.#watch(sessionId, () => {
      watch[Symbol.dispose]();
      uses.delete(sessionId);
      if (uses.size === 0 && !this.#shared.has(connection)) end(connection);
    });
    uses.set(sessionId, watch);
  }

  /** The ids of up to 100 sessions that have used the connection last. */
  of(connection: Connection): string[] {
    return [...(this.#recent.get(connection)?.rkeys() ?? [])];
  }

  #begin(connection: Connection): Map<string, Disposable> {
    const uses = new Map<string, Disposable>();
    this.#uses.set(connection, uses);
    void connection.closed.then(() => forget(uses));
    return uses;
  }
}

type Connection = Pick<McpConnection, 'takesCalls' | 'closed' | 'retire' | 'close'>;

/** A call that waits for its user would keep the connection for half an hour. */
function end(connection: Connection): void {
  connection.retire();
  setTimeout(() => void connection.close(), CALLS_GRACE_MS).unref();
}

function forget(uses: Map<string, Disposable>): void {
  for (const watch of uses.values()) watch[Symbol.dispose]();
  uses.clear();
}
