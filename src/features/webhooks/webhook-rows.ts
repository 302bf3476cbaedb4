import type { WebhookEventType } from '../../catalog/outbox.ts';
import type { WebhookFace, WebhookRow } from './tables.ts';
import { changeRows, countRows, Store } from '../../catalog/store.ts';

/** A registered webhook with its decrypted parts. */
export interface Webhook<F extends WebhookFace = WebhookFace> extends Omit<WebhookRow, 'face' | 'events'> {
  face: F;
  events: F extends 'sessions' ? WebhookEventType[] : string[];
}

export type NewWebhook<F extends WebhookFace = WebhookFace> = Pick<
  Webhook<F>,
  'id' | 'face' | 'url' | 'events' | 'agent_name' | 'secret' | 'created_at'
> &
  Partial<Pick<Webhook, 'description' | 'disabled'>>;

/** The fields of a webhook that may change. */
interface WebhookChange {
  url?: string | undefined;
  events?: string[] | undefined;
  description?: string | null | undefined;
  disabled?: boolean | undefined;
}

type Part = 'url' | 'secret' | 'description';

/** The registered webhooks. URLs are encrypted, too, since many contain a token. */
export class Webhooks extends Store {
  /** Stores a webhook. False if its API already has `max` webhooks. */
  async insert(webhook: NewWebhook, max: number): Promise<boolean> {
    const { id, face, url, secret, events, description = null, created_at } = webhook;
    return this.db.transaction().execute(async (db) => {
      await db
        .insertInto('webhooks')
        .values({
          ...webhook,
          url: this.#seal(id, 'url', url),
          secret: this.#seal(id, 'secret', secret),
          description: description === null ? null : this.#seal(id, 'description', description),
          events: JSON.stringify(events),
          updated_at: created_at,
        })
        .execute();
      if ((await countRows(db.selectFrom('webhooks').where('face', '=', face))) <= max) return true;
      await db.deleteFrom('webhooks').where('id', '=', id).execute();
      return false;
    });
  }

  /** A webhook of any API. */
  async get(id: string): Promise<Webhook | undefined> {
    const row = await this.db.selectFrom('webhooks').selectAll().where('id', '=', id).executeTakeFirst();
    return row && this.#open(row);
  }

  /** A webhook of one API. */
  async find<F extends WebhookFace>(face: F, id: string): Promise<Webhook<F> | undefined> {
    const webhook = await this.get(id);
    return webhook && isOf(face, webhook) ? webhook : undefined;
  }

  /** All webhooks of an API, oldest first. */
  async list<F extends WebhookFace>(face: F): Promise<Webhook<F>[]> {
    const rows = await this.db.selectFrom('webhooks').selectAll().where('face', '=', face).orderBy('id').execute();
    return rows.map((row) => this.#open(row)).filter((webhook) => isOf(face, webhook));
  }

  /** The ids of all webhooks. */
  async ids(): Promise<string[]> {
    const rows = await this.db.selectFrom('webhooks').select('id').orderBy('id').execute();
    return rows.map(({ id }) => id);
  }

  /** Deletes a webhook with its deliveries. False if its API has none with this id. */
  async delete(face: WebhookFace, id: string): Promise<boolean> {
    return changeRows(this.db.deleteFrom('webhooks').where('id', '=', id).where('face', '=', face));
  }

  /** Replaces the secret; the current one also signs until `oldUntil`. False if there is no webhook with this id. */
  async rotate(
    id: string,
    { secret, now, oldUntil }: { secret: string; now: string; oldUntil: string },
  ): Promise<boolean> {
    const rotated = this.db.updateTable('webhooks').set((eb) => ({
      secret: this.#seal(id, 'secret', secret),
      old_secret: eb.ref('secret'),
      old_secret_until: oldUntil,
      updated_at: now,
    }));
    return changeRows(rotated.where('id', '=', id));
  }

  /** Changes the fields that are present. Enabling a webhook again resets its failures. */
  async update(id: string, { url, events, description, disabled }: WebhookChange, now: string): Promise<void> {
    await this.db
      .updateTable('webhooks')
      .set({
        ...(url !== undefined && { url: this.#seal(id, 'url', url) }),
        ...(events && { events: JSON.stringify(events) }),
        ...(description !== undefined && {
          description: description === null ? null : this.#seal(id, 'description', description),
        }),
        ...(disabled !== undefined && { disabled: Number(disabled) }),
        ...(disabled === false && { failures: 0, failing_since: null }),
        updated_at: now,
      })
      .where('id', '=', id)
      .execute();
  }

  /**
   * Records an attempt at a delivery. True if it disables the webhook: `failures` attempts in a row have failed, the
   * first one before `since`.
   */
  async attempted(
    id: string,
    { at, error }: { at: string; error: string | null },
    limit: { failures: number; since: string },
  ): Promise<boolean> {
    const webhook = this.db.updateTable('webhooks').where('id', '=', id);
    if (error === null) {
      const success = { last_attempt_at: at, last_error: null, last_success_at: at, failures: 0, failing_since: null };
      await webhook.set(success).execute();
      return false;
    }
    await webhook
      .set((eb) => ({
        last_attempt_at: at,
        last_error: error,
        failures: eb('failures', '+', 1),
        failing_since: eb.fn.coalesce('failing_since', eb.val(at)),
      }))
      .execute();
    return changeRows(
      webhook
        .set({ disabled: 1, updated_at: at })
        .where('disabled', '=', 0)
        .where('failures', '>=', limit.failures)
        .where('failing_since', '<=', limit.since),
    );
  }

  #open(row: WebhookRow): Webhook {
    const { id, url, secret, old_secret: old, description, events } = row;
    return {
      ...row,
      url: this.cipher.openText(url, aadFor(id, 'url')),
      secret: this.cipher.openText(secret, aadFor(id, 'secret')),
      old_secret: old && this.cipher.openText(old, aadFor(id, 'secret')),
      description: description && this.cipher.openText(description, aadFor(id, 'description')),
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `insert`
      events: JSON.parse(events) as WebhookEventType[],
    };
  }

  #seal(id: string, part: Part, text: string): string {
    return this.cipher.sealText(text, aadFor(id, part));
  }
}

function isOf<F extends WebhookFace>(face: F, webhook: Webhook): webhook is Webhook<F> {
  return webhook.face === face;
}

function aadFor(webhookId: string, part: Part): string {
  return `webhook/${webhookId}/${part}`;
}
