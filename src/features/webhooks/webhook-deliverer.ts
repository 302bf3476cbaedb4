import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import type { Deliveries, Lane } from './deliveries.ts';
import type { DeliveryRow, WebhookFace } from './tables.ts';
import type { Webhook, Webhooks } from './webhook-rows.ts';
import { isoTime } from '../../core/text.ts';
import { backoffMs } from '../../lib/backoff.ts';
import type { LiveBus } from '../../live/bus.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { WebhookFormat } from './webhook-format.ts';
import { WebhookSender, type SendResult } from './webhook-sender.ts';

/**
 * The lanes of one webhook that this process serves at once. A receiver that hangs blocks only these, so other webhooks
 * are not delayed.
 */
const MAX_LANES = 8;

/** A lane whose worker died is taken over after this time; longer than an attempt with its reads and writes takes. */
const LEASE_MS = 30_000;

/** The number of deliveries after which a lane is released, so that one busy session does not delay the others. */
const MAX_DELIVERIES = 50;

/** How long a delivery is retried, from its creation. */
const RETRIED_FOR_MS = 24 * 3_600_000;

const FIRST_RETRY_MS = 2_000;
const MAX_RETRY_MS = 3_600_000;

/** While lanes wait, lanes that other processes have changed are detected after this time. */
const POLL_MS = 5_000;
const MIN_POLL_MS = 500;

interface DelivererOptions {
  catalog: { webhooks: Webhooks; deliveries: Deliveries };
  bus: LiveBus;
  metrics: Pick<Metrics, 'webhookAttempts'>;
  log: Logger;
  allowPrivateUrls: () => boolean;
  /** By the API with which a webhook was registered. */
  formats: Record<WebhookFace, WebhookFormat>;
}

/**
 * Sends the deliveries to webhooks. All workers share them: each lane is served by the worker that has leased it, one
 * delivery after the other. If a worker dies after a delivery and before it has recorded the attempt, the delivery is
 * repeated with the same id. Without pending deliveries, the deliverer sleeps until it is woken.
 */
export class WebhookDeliverer {
  readonly #options: DelivererOptions;
  readonly #sender: WebhookSender;
  readonly #lease = randomUUID();
  readonly #stop = new AbortController();
  readonly #unsubscribe: () => void;
  /** The lanes in progress, by webhook. */
  readonly #serving = new Map<string, Set<Promise<void>>>();
  #isWoken = true;
  #wake: () => void = () => undefined;
  readonly #running: Promise<void>;

  constructor(options: DelivererOptions) {
    this.#options = options;
    this.#sender = new WebhookSender(options.allowPrivateUrls);
    this.#unsubscribe = options.bus.onHint('change:deliveries', () => this.wake());
    this.#running = this.#run();
  }

  /** Checks for deliveries now. */
  wake(): void {
    this.#isWoken = true;
    this.#wake();
  }

  /** Aborts the attempts in progress, which another worker repeats. */
  async stop(): Promise<void> {
    this.#unsubscribe();
    this.#stop.abort();
    this.wake();
    await this.#running;
    await Promise.all([...this.#serving.values()].flatMap((lanes) => [...lanes]));
    await this.#sender.close();
  }

  async #run(): Promise<void> {
    const { deliveries } = this.#options.catalog;
    while (!this.#stop.signal.aborted) {
      this.#isWoken = false;
      let due: string | undefined;
      try {
        due = await deliveries.nextDue();
        if (due !== undefined) await this.#claim();
      } catch (error) {
        this.#options.log.warn({ err: error }, 'the deliveries to webhooks cannot be read; retrying');
        due = new Date().toISOString();
      }
      const wait = due === undefined ? undefined : Date.parse(due) - Date.now();
      await this.#sleep(wait === undefined ? undefined : Math.min(POLL_MS, Math.max(MIN_POLL_MS, wait)));
    }
  }

  /** Waits for this time, or until it is woken; undefined: only until it is woken. */
  async #sleep(ms: number | undefined): Promise<void> {
    if (this.#isWoken) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    const timer = ms === undefined ? undefined : setTimeout(resolve, ms);
    await promise;
    clearTimeout(timer);
  }

  async #claim(): Promise<void> {
    const { webhooks, deliveries } = this.#options.catalog;
    for (const webhookId of await webhooks.ids()) {
      const serving = this.#serving.get(webhookId) ?? new Set();
      const limit = MAX_LANES - serving.size;
      if (limit === 0) continue;
      const now = Date.now();
      const times = { now: isoTime(now), until: isoTime(now + LEASE_MS) };
      const lanes = await deliveries.claim(webhookId, { ...times, limit, lease: `${this.#lease}/${now}` });
      this.#serving.set(webhookId, serving);
      for (const lane of lanes) {
        const served = this.#serve(lane).finally(() => {
          serving.delete(served);
          if (serving.size === 0) this.#serving.delete(webhookId);
          this.wake();
        });
        serving.add(served);
      }
    }
  }

  /** Sends the deliveries of a lane until one fails. Never rejects: after errors, a lane is due when its lease ends. */
  async #serve(lane: Lane): Promise<void> {
    const { deliveries } = this.#options.catalog;
    let last = lane.lastSequence;
    try {
      for (let sent = 0; sent < MAX_DELIVERIES && !this.#stop.signal.aborted; sent++) {
        const delivery = await deliveries.next(lane);
        if (!delivery) break;
        if (!(await this.#deliver(lane, delivery))) return;
        last = Math.max(last, delivery.sequence);
      }
      const isEmpty = (await deliveries.next(lane)) === undefined;
      await deliveries.release(lane, { last: isEmpty ? last : 0, dueAt: isoTime(Date.now()) });
    } catch (error) {
      const { webhookId, sessionId } = lane;
      this.#options.log.warn({ webhookId, sessionId, err: error }, 'a delivery to a webhook failed; retrying');
    }
  }

  /** Makes one attempt. False if the lane was released: the attempt failed, or the lease has ended. */
  async #deliver(lane: Lane, delivery: DeliveryRow): Promise<boolean> {
    const { catalog, metrics, log, formats } = this.#options;
    const webhook = await catalog.webhooks.get(lane.webhookId);
    if (!webhook) return false;
    const format = formats[webhook.face];
    const message = webhook.disabled ? undefined : await format.messageOf(delivery);
    if (message === 'nothing') return catalog.deliveries.drop(lane, delivery, isoTime(Date.now() + LEASE_MS));
    const startedAt = Date.now();
    const result = message ? await this.#send(webhook, delivery, message) : notSent(webhook);
    if (this.#stop.signal.aborted && result.error !== null) {
      await catalog.deliveries.release(lane, { last: 0, dueAt: isoTime(Date.now()) });
      return false;
    }
    const attempt = { at: isoTime(startedAt), ...result };
    if (message) await format.attempted?.(webhook, attempt);
    const isOver = result.error === null || !message || startedAt - Date.parse(delivery.created_at) > RETRIED_FOR_MS;
    const outcome = result.error === null ? 'delivered' : isOver ? 'failed' : 'retried';
    metrics.webhookAttempts.inc({ outcome });
    const { webhookId, sessionId } = lane;
    if (outcome === 'failed') {
      log.warn({ webhookId, sessionId, deliveryId: delivery.id, reason: result.error }, 'a delivery was given up');
    }
    if (outcome !== 'retried') {
      return catalog.deliveries.record(lane, delivery, {
        attempt,
        status: outcome,
        until: isoTime(Date.now() + LEASE_MS),
      });
    }
    const pause = backoffMs(delivery.attempts, { first: FIRST_RETRY_MS, max: MAX_RETRY_MS, jitter: 0.2 });
    await catalog.deliveries.record(lane, delivery, { attempt, dueAt: isoTime(Date.now() + pause) });
    return false;
  }

  #send(webhook: Webhook, { id, attempts }: DeliveryRow, message: object): Promise<SendResult> {
    const { headersOf } = this.#options.formats[webhook.face];
    const body = JSON.stringify(message);
    return this.#sender.send(webhook, { id, body, attempts }, { headersOf, stop: this.#stop.signal });
  }
}

function notSent({ disabled }: Webhook): SendResult {
  return { responseStatus: null, error: disabled ? 'the webhook is disabled' : 'its session was deleted' };
}
