import type { Kysely } from 'kysely';
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
