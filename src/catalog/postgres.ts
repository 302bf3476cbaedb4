import {
  ColumnDefinitionNode,
  PostgresDialect,
  PostgresQueryCompiler,
  type DataTypeNode,
  type PostgresCursor,
  type PostgresPool,
  type PostgresPoolClient,
  type PostgresQueryResult,
  type QueryCompiler,
} from 'kysely';
import { DatabaseError, Pool, TypeOverrides } from 'pg';
import type { Logger } from 'pino';

interface PgOptions {
  url: string;
  /** Connections of this process at most; the server allows a hundred as it comes. */
  connections?: number;
  /** A statement that takes longer is given up; 0 for none. */
  statementMs?: number;
}

const CONNECTIONS = 10;
/** Statements of ours take milliseconds; the longest writes some megabytes into the archive. */
const STATEMENT_MS = 30_000;
/** For a connection to be made, and for one to become free. */
const CONNECT_MS = 5_000;
/** A server that can't even say that it has given up a statement is out of reach, without the network saying so. */
const SILENCE_MS = 5_000;
const IDLE_MS = 60_000;

/** Kysely's PostgreSQL dialect on `pg`, with errors that tell a server that is away from a mistake of ours. */
export class PgDialect extends PostgresDialect {
  constructor(options: PgOptions, log: Logger) {
    super({ pool: () => Promise.resolve(openPool(options, log)) });
  }

  override createQueryCompiler(): QueryCompiler {
    return new BytewiseQueryCompiler();
  }
}

/** Text compares by its bytes, as in SQLite: orders and page tokens must not depend on a database's locale. */
class BytewiseQueryCompiler extends PostgresQueryCompiler {
  protected override visitDataType(node: DataTypeNode): void {
    super.visitDataType(node);
    const isColumn = this.parentNode !== undefined && ColumnDefinitionNode.is(this.parentNode);
    if (isColumn && node.dataType === 'text') this.append(' collate "C"');
  }
}

const INT8_OID = 20;

function openPool(options: PgOptions, log: Logger): PostgresPool {
  const { url, connections = CONNECTIONS, statementMs = STATEMENT_MS } = options;
  const types = new TypeOverrides();
  // `pg` gives 64 bits as text; our counts and numbers fit, and SQLite gives them as numbers.
  types.setTypeParser(INT8_OID, Number);
  const pool = new Pool({
    connectionString: url,
    fallback_application_name: 'everturn',
    max: connections,
    connectionTimeoutMillis: CONNECT_MS,
    idleTimeoutMillis: IDLE_MS,
    keepAlive: true,
    types,
    ...(statementMs > 0 && {
      statement_timeout: statementMs,
      query_timeout: statementMs + SILENCE_MS,
      // If this machine dies in the middle of a transaction, its locks shall not outlive it by hours.
      idle_in_transaction_session_timeout: statementMs,
    }),
  });
  // A connection that breaks says so by an event, also while it is in use, and one that nobody hears ends the process.
  // The error has the whole connection on it, which is not for the log.
  pool.on('error', (error) => log.warn({ reason: reasonOf(error) }, 'an idle connection to PostgreSQL has broken'));
  pool.on('connect', (client) => client.on('error', () => undefined));
  return {
    connect: async () => {
      try {
        return new Connection(await pool.connect());
      } catch (error) {
        throw new PostgresUnreachable(error);
      }
    },
    end: () => pool.end(),
  };
}

/** A connection of the pool, which does not go back there when it may be of no use any more. */
class Connection implements PostgresPoolClient {
  readonly #client: PostgresPoolClient & { release: (destroy: boolean) => void };
  #failure: unknown;

  constructor(client: PostgresPoolClient & { release: (destroy: boolean) => void }) {
    this.#client = client;
  }

  query<R>(sql: string, parameters: readonly unknown[]): Promise<PostgresQueryResult<R>>;
  query<R>(cursor: PostgresCursor<R>): PostgresCursor<R>;
  query<R>(
    sql: string | PostgresCursor<R>,
    parameters: readonly unknown[] = [],
  ): Promise<PostgresQueryResult<R>> | PostgresCursor<R> {
    if (typeof sql !== 'string') throw new TypeError('the catalog reads without cursors');
    return this.#query(sql, parameters);
  }

  async #query<R>(sql: string, parameters: readonly unknown[]): Promise<PostgresQueryResult<R>> {
    // A rollback, which would only wait for a server that has gone; the end of the connection is one too.
    if (this.#failure) throw this.#failure;
    try {
      return await this.#client.query<R>(sql, parameters);
    } catch (cause) {
      const error = cause instanceof DatabaseError ? cause : new PostgresUnreachable(cause);
      // After a failover also those are connected to the wrong server that can still talk to it.
      if (isPostgresUnavailable(error)) this.#failure = error;
      throw error;
    }
  }

  release(): void {
    this.#client.release(this.#failure !== undefined);
  }
}

/** There is no connection to the server, or it broke. */
class PostgresUnreachable extends Error {
  static {
    this.prototype.name = 'PostgresUnreachable';
  }

  constructor(cause: unknown) {
    super(`PostgreSQL can not be reached: ${reasonOf(cause)}`, { cause });
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // An error that stands for one of each address has no message of its own.
  return error.message || ('code' in error ? String(error.code) : error.name);
}

/** The server answers, but does not let us in: the user, its password or the database is not known there. */
export function isPostgresRefusal(error: unknown): boolean {
  const cause = error instanceof PostgresUnreachable ? error.cause : undefined;
  return cause instanceof DatabaseError && /^(28|3D)/.test(cause.code ?? '');
}

/** Classes of SQLSTATE for what may work again later: connection, conflict of transactions, resources, operator, disk. */
const UNAVAILABLE_CLASSES = new Set(['08', '40', '53', '57', '58']);
/** And single codes: read-only as a standby is, a transaction that was idle for too long, a lock that was not free. */
const UNAVAILABLE = new Set(['25006', '25P03', '55P03']);

export function isPostgresUnavailable(error: unknown): boolean {
  if (error instanceof PostgresUnreachable) return true;
  if (!(error instanceof DatabaseError) || error.code === undefined) return false;
  return UNAVAILABLE_CLASSES.has(error.code.slice(0, 2)) || UNAVAILABLE.has(error.code);
}
