import type { Kysely } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { Tables, WebhookEventType, WebhookRow } from './schema.ts';

/** A registered webhook with its decrypted parts. */
export interface Webhook extends Omit<WebhookRow, 'events'> {
  events: WebhookEventType[];
}

/** The registered webhooks. URLs are encrypted too, since many contain a token. */
export class Webhooks {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  /** Stores a webhook, unless `max` exist already: then false. */
  async insert(webhook: Omit<Webhook, 'old_secret' | 'old_secret_until'>, max: number): Promise<boolean> {
    const { id, url, secret, events } = webhook;
    return this.#db.transaction().execute(async (db) => {
      await db
        .insertInto('webhooks')
        .values({
          ...webhook,
          url: this.#cipher.sealText(url, aadFor(id, 'url')),
          secret: this.#cipher.sealText(secret, aadFor(id, 'secret')),
          events: JSON.stringify(events),
        })
        .execute();
      const { count } = await db
        .selectFrom('webhooks')
        .select((eb) => eb.fn.countAll<number>().as('count'))
        .executeTakeFirstOrThrow();
      if (count <= max) return true;
      await db.deleteFrom('webhooks').where('id', '=', id).execute();
      return false;
    });
  }

  async get(id: string): Promise<Webhook | undefined> {
    const row = await this.#db.selectFrom('webhooks').selectAll().where('id', '=', id).executeTakeFirst();
    return row && this.#open(row);
  }

  /** All webhooks, oldest first. */
  async list(): Promise<Webhook[]> {
    const rows = await this.#db.selectFrom('webhooks').selectAll().orderBy('id').execute();
    return rows.map((row) => this.#open(row));
  }

  /** The ids of all webhooks. */
  async ids(): Promise<string[]> {
    const rows = await this.#db.selectFrom('webhooks').select('id').orderBy('id').execute();
    return rows.map(({ id }) => id);
  }

  /** Deletes a webhook with its deliveries. False if there is none with this id. */
  async delete(id: string): Promise<boolean> {
    const { numDeletedRows } = await this.#db.deleteFrom('webhooks').where('id', '=', id).executeTakeFirst();
    return numDeletedRows > 0n;
  }

  /** Replaces the secret; the current one also signs until `oldUntil`. False if there is no webhook with this id. */
  async rotate(id: string, { secret, oldUntil }: { secret: string; oldUntil: string }): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('webhooks')
      .set((eb) => ({
        secret: this.#cipher.sealText(secret, aadFor(id, 'secret')),
        old_secret: eb.ref('secret'),
        old_secret_until: oldUntil,
      }))
      .where('id', '=', id)
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }

  #open(row: WebhookRow): Webhook {
    const { id, url, secret, old_secret: old, events } = row;
    return {
      ...row,
      url: this.#cipher.openText(url, aadFor(id, 'url')),
      secret: this.#cipher.openText(secret, aadFor(id, 'secret')),
      old_secret: old && this.#cipher.openText(old, aadFor(id, 'secret')),
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `insert`
      events: JSON.parse(events) as WebhookEventType[],
    };
  }
}

function aadFor(webhookId: string, part: 'url' | 'secret'): string {
  return `webhook/${webhookId}/${part}`;
}
