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
import { storableText } from './storable-text.ts';
import { NamedError } from '../lib/errors.ts';

interface PgOptions {
  url: string;
  /** Maximum connections of this process; a PostgreSQL server allows 100 by default. */
  connections?: number;
  /** Statement time-out; 0 for none. */
  statementMs?: number;
}

const MAX_CONNECTIONS = 10;
/** Statements take milliseconds; the longest writes a few megabytes into the archive. */
const STATEMENT_TIMEOUT_MS = 30_000;
/** For opening a connection, and for waiting until one of the pool is free. */
const CONNECT_TIMEOUT_MS = 5_000;
/** A server that does not even report a statement time-out within this time is unreachable. */
const RESPONSE_GRACE_MS = 5_000;
const IDLE_TIMEOUT_MS = 60_000;

/** Kysely's PostgreSQL dialect on `pg`, with errors that distinguish an unavailable server from a faulty query. */
export class PgDialect extends PostgresDialect {
  constructor(options: PgOptions, log: Logger) {
    super({ pool: () => Promise.resolve(openPool(options, log)) });
  }

  override createQueryCompiler(): QueryCompiler {
    return new BytewiseQueryCompiler();
  }
}

/** Makes text compare bytewise, as in SQLite: list orders and page tokens must not depend on a database's locale. */
class BytewiseQueryCompiler extends PostgresQueryCompiler {
  protected override visitDataType(node: DataTypeNode): void {
    super.visitDataType(node);
    const isColumn = this.parentNode !== undefined && ColumnDefinitionNode.is(this.parentNode);
    if (isColumn && node.dataType === 'text') this.append(' collate "C"');
  }
}

const INT8_OID = 20;

function openPool(options: PgOptions, log: Logger): PostgresPool {
  const { url, connections = MAX_CONNECTIONS, statementMs = STATEMENT_TIMEOUT_MS } = options;
  const types = new TypeOverrides();
  // `pg` returns 64-bit integers as text. The catalog's integers fit into a number, which is also what SQLite returns.
  types.setTypeParser(INT8_OID, Number);
  const pool = new Pool({
    connectionString: url,
    fallback_application_name: 'everturn',
    max: connections,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    keepAlive: true,
    types,
    ...(statementMs > 0 && {
      statement_timeout: statementMs,
      query_timeout: statementMs + RESPONSE_GRACE_MS,
      // If this machine fails during a transaction, the server releases its locks after this time, not after hours.
      idle_in_transaction_session_timeout: statementMs,
    }),
  });
  // A connection that breaks emits an error event, also while it is in use; an unhandled one ends the process. The
  // error object contains the whole connection, so only its reason is logged.
  pool.on('error', (error) => log.warn({ reason: reasonOf(error) }, 'an idle connection to PostgreSQL broke'));
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
    options: pool.options,
  };
}

/** A connection of the pool, which is closed instead of returned to the pool after it may have broken. */
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
    // Only a rollback can follow a failure. It would wait for an unreachable server, and closing the connection rolls
    // back.
    if (this.#failure) throw this.#failure;
    try {
      const values = parameters.map((value) => (typeof value === 'string' ? storableText(value) : value));
      return await this.#client.query<R>(sql, values);
    } catch (cause) {
      const error = cause instanceof DatabaseError ? cause : new PostgresUnreachable(cause);
      // Includes errors on a working connection: after a failover it may be connected to the wrong server.
      if (isPostgresUnavailable(error)) this.#failure = error;
      throw error;
    }
  }

  release(): void {
    this.#client.release(this.#failure !== undefined);
  }
}

/** No connection to the server could be opened, or the connection broke. */
class PostgresUnreachable extends NamedError {
  constructor(cause: unknown) {
    super(`PostgreSQL cannot be reached: ${reasonOf(cause)}`, { cause });
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // An AggregateError, with one error for each address, has no message of its own.
  return error.message || ('code' in error ? String(error.code) : error.name);
}

/** Whether the server rejects the login: the user, its password or the database is wrong. */
export function isPostgresRejection(error: unknown): boolean {
  const cause = error instanceof PostgresUnreachable ? error.cause : undefined;
  return cause instanceof DatabaseError && /^(28|3D)/.test(cause.code ?? '');
}

/**
 * SQLSTATE classes of transient errors: connection, transaction conflict, resources, operator intervention, system
 * error.
 */
const UNAVAILABLE_CLASSES = new Set(['08', '40', '53', '57', '58']);
/**
 * Single SQLSTATE codes of transient errors: read-only transaction (a standby), idle-in-transaction time-out, lock not
 * available.
 */
const UNAVAILABLE = new Set(['25006', '25P03', '55P03']);

export function isPostgresUnavailable(error: unknown): boolean {
  if (error instanceof PostgresUnreachable) return true;
  if (!(error instanceof DatabaseError) || error.code === undefined) return false;
  return UNAVAILABLE_CLASSES.has(error.code.slice(0, 2)) || UNAVAILABLE.has(error.code);
}
