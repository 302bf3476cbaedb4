import type { Kysely, SelectQueryBuilder } from 'kysely';
import type { Logger } from 'pino';
import type { Cipher } from '../encryption/cipher.ts';
import type { CatalogFeatures } from './log-reader.ts';
import type { Outbox } from './outbox.ts';
import type { Tables } from './schema.ts';

/** What the parts of the catalog share. */
export interface CatalogContext {
  db: Kysely<Tables>;
  cipher: Cipher;
  outbox: Outbox;
  features: CatalogFeatures;
  log: Pick<Logger, 'warn'>;
}

/** Reads and writes tables of the catalog. */
export abstract class Store {
  protected readonly context: CatalogContext;
  protected readonly db: Kysely<Tables>;
  protected readonly cipher: Cipher;

  constructor(context: CatalogContext) {
    this.context = context;
    this.db = context.db;
    this.cipher = context.cipher;
  }
}

interface ChangeResult {
  numUpdatedRows?: bigint;
  numDeletedRows?: bigint;
  numInsertedOrUpdatedRows?: bigint | undefined;
}

/** Executes an insert, an update or a deletion. False if it has changed no row. */
export async function changeRows(statement: { executeTakeFirst(): Promise<ChangeResult> }): Promise<boolean> {
  const result = await statement.executeTakeFirst();
  return (result.numUpdatedRows ?? result.numDeletedRows ?? result.numInsertedOrUpdatedRows ?? 0n) > 0n;
}

/** How many rows a query without a selection finds. */
export async function countRows<From extends keyof Tables>(
  query: SelectQueryBuilder<Tables, From, object>,
): Promise<number> {
  const { count } = await query.select((eb) => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  return count;
}
