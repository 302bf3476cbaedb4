import { CompiledQuery, Kysely, sql } from 'kysely';
import { pino } from 'pino';
import { Catalog } from '../../src/features/catalog.ts';
import { dialectOf, type Database } from '../../src/catalog/database.ts';
import type { Tables } from '../../src/catalog/schema.ts';
import { NO_ENCRYPTION } from '../../src/encryption/cipher.ts';

/** The tables that grow with all that has ever happened. */
const GROWING = new Set<string>([
  'sessions',
  'turns',
  'archive',
  'actions',
  'action_audience',
  'action_events',
  'idempotency',
  'deliveries',
  'delegations',
  'session_requests',
  'blob_references',
  'held_blobs',
  'stored_blobs',
] satisfies (keyof Tables)[]);

/** The indexes that may be read from one end without a condition. */
const WALKED = new Set([
  // Holds only the turns that run, wait, or still have to be archived.
  'turns_unarchived',
  // A list of the Agents API v2 looks at the first 10,000 of its order.
  'sessions_shown_by_time',
  // Holds only what has changed since the last sweep.
  'stored_bytes_changes_by_subject',
]);

/** A catalog whose statements are recorded. */
export class PlannedCatalog {
  readonly catalog: Catalog;
  /** For what is not a part of the catalog's work. */
  readonly db: Kysely<Tables>;
  readonly #kind: Database['kind'];
  readonly #statements = new Map<string, readonly unknown[]>();

  /** @param database that of a catalog, which is migrated */
  constructor(database: Database) {
    const log = pino({ level: 'silent' });
    this.#kind = database.kind;
    this.db = new Kysely<Tables>({ dialect: dialectOf(database, log) });
    const recorded = new Kysely<Tables>({
      dialect: dialectOf(database, log),
      log: ({ query }) => void this.#statements.set(query.sql, query.parameters),
    });
    this.catalog = new Catalog({ db: recorded, kind: database.kind, schema: [], cipher: NO_ENCRYPTION, log });
  }

  /**
   * Makes a call, and returns which of its statements read a growing table from one end to the other: of each a line with
   * the step of the plan, and the statement.
   *
   * @param isIndexed whether PostgreSQL is to use an index wherever one is usable: it reads small tables as a whole otherwise,
   *   row by row or for a join
   */
  async scansOf(call: (catalog: Catalog) => Promise<unknown>, { isIndexed = false } = {}): Promise<string[]> {
    this.#statements.clear();
    await call(this.catalog);
    const statements = [...this.#statements].filter(([text]) => /^(select|with|insert|update|delete)/.test(text));
    return this.db.connection().execute(async (connection) => {
      if (this.#kind === 'postgres' && isIndexed) {
        for (const way of ['seqscan', 'hashjoin', 'mergejoin']) {
          await sql`set ${sql.raw(`enable_${way}`)} = off`.execute(connection);
        }
      }
      const scans: string[] = [];
      for (const [text, parameters] of statements) {
        for (const step of await this.#scans(connection, text, parameters)) scans.push(`${step} in ${text}`);
      }
      return scans;
    });
  }

  async #scans(connection: Kysely<Tables>, text: string, parameters: readonly unknown[]): Promise<string[]> {
    if (this.#kind === 'sqlite') {
      const plan = CompiledQuery.raw(`explain query plan ${text}`, [...parameters]);
      const { rows } = await connection.executeQuery<{ detail: string }>(plan);
      const aliases = new Map([...text.matchAll(/"(\w+)" as "(\w+)"/g)].map(([, table, alias]) => [alias, table]));
      return rows.flatMap(({ detail }) => (isScanOnSqlite(detail, aliases) ? detail : []));
    }
    const { rows } = await connection.executeQuery<{ 'QUERY PLAN': [{ Plan: PostgresStep }] }>(
      CompiledQuery.raw(`explain (format json) ${text}`, [...parameters]),
    );
    return rows.flatMap((row) => stepsOf(row['QUERY PLAN'][0].Plan).filter(isScanOnPostgres).map(textOf));
  }

  async close(): Promise<void> {
    await this.catalog.close();
    await this.db.destroy();
  }
}

/** A step of SQLite's plan, such as `SCAN s USING INDEX sessions_by_time` or `SEARCH turns USING INDEX ... (id=?)`. */
function isScanOnSqlite(detail: string, aliases: Map<string | undefined, string | undefined>): boolean {
  const [, table] = /^(?:SCAN|SEARCH) (\w+)/.exec(detail) ?? [];
  if (table === undefined || !GROWING.has(aliases.get(table) ?? table)) return false;
  // An index that is made for one statement, from all rows.
  if (detail.includes('AUTOMATIC')) return true;
  if (detail.startsWith('SEARCH')) return false;
  const [, index] = /USING (?:COVERING )?INDEX (\w+)/.exec(detail) ?? [];
  return index === undefined || !WALKED.has(index);
}

interface PostgresStep {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'Recheck Cond'?: string;
  Plans?: PostgresStep[];
}

function stepsOf(step: PostgresStep): PostgresStep[] {
  return [step, ...(step.Plans ?? []).flatMap(stepsOf)];
}

function isScanOnPostgres(step: PostgresStep): boolean {
  const { 'Node Type': type, 'Relation Name': table, 'Index Name': index, 'Index Cond': condition } = step;
  if (type === 'Seq Scan') return GROWING.has(table ?? '');
  if (!/Index/.test(type) || condition !== undefined || WALKED.has(index ?? '')) return false;
  // The step of a bitmap does not name its table.
  return table === undefined || GROWING.has(table);
}

function textOf({ 'Node Type': type, 'Relation Name': table, 'Index Name': index }: PostgresStep): string {
  return [type, table, index].filter(Boolean).join(' ');
}
