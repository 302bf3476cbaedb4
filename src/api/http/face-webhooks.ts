import { isId } from '../../core/ids.ts';
import { newId } from '../../engine/new-id.ts';
import type { Catalog } from '../../features/catalog.ts';
import { newSecret, rotatedNow } from '../../features/webhooks/signature.ts';
import type { WebhookFace } from '../../features/webhooks/tables.ts';
import type { NewWebhook, Webhook } from '../../features/webhooks/webhook-rows.ts';
import { ApiError } from './errors.ts';

export const exampleSecret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

/** The webhooks that are registered with one face, for its routes. */
export class FaceWebhooks<F extends WebhookFace> {
  readonly #catalog: Catalog;
  readonly #face: F;
  readonly #limit: number;

  constructor(catalog: Catalog, { face, limit }: { face: F; limit: number }) {
    this.#catalog = catalog;
    this.#face = face;
    this.#limit = limit;
  }

  /** Registers a webhook, with a new secret. @throws ApiError `too_many_webhooks` */
  async register(webhook: Omit<NewWebhook<F>, 'id' | 'face' | 'secret' | 'created_at'>): Promise<NewWebhook<F>> {
    const created_at = new Date().toISOString();
    const registered = { ...webhook, id: newId('whk'), face: this.#face, secret: newSecret(), created_at };
    if (await this.#catalog.webhooks.insert(registered, this.#limit)) return registered;
    throw new ApiError('too_many_webhooks', `there are ${this.#limit} webhooks, which is the limit: delete one`);
  }

  /** @throws ApiError `webhook_not_found` */
  async find(id: string): Promise<Webhook<F>> {
    const webhook = isId(id) ? await this.#catalog.webhooks.find(this.#face, id) : undefined;
    if (!webhook) throw webhookNotFound(id);
    return webhook;
  }

  /** Deletes a webhook with its deliveries. @throws ApiError `webhook_not_found` */
  async delete(id: string): Promise<void> {
    if (!isId(id) || !(await this.#catalog.webhooks.delete(this.#face, id))) throw webhookNotFound(id);
  }

  /** Replaces the secret of a webhook. Returns it as it was, with the new one. @throws ApiError `webhook_not_found` */
  async rotate(id: string): Promise<Webhook<F>> {
    const webhook = await this.find(id);
    const secret = newSecret();
    if (!(await this.#catalog.webhooks.rotate(id, { secret, ...rotatedNow() }))) throw webhookNotFound(id);
    return { ...webhook, secret };
  }
}

export function webhookNotFound(id: string): ApiError {
  return new ApiError('webhook_not_found', `there is no webhook ${JSON.stringify(id)}`);
}
