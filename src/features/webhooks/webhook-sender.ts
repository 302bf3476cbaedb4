import type { Webhook } from './webhook-rows.ts';
import { createAgent, createFetch, RefusedAddressError, type Fetch } from '../../lib/guarded-fetch.ts';
import { isPrivateAddress } from '../../lib/private-address.ts';
import { failureReason } from '../../mcp/failure-reason.ts';
import type { Outgoing, WebhookFormat } from './webhook-format.ts';

/** How long a receiver may take to respond, including the connection. */
const TIMEOUT_MS = 10_000;

/** The outcome of an attempt; `error` is null if the receiver has accepted the message. */
export interface SendResult {
  /** Null if there was no response. */
  responseStatus: number | null;
  error: string | null;
}

/** Sends messages to webhooks. Addresses are checked when a connection is opened; redirects are not followed. */
export class WebhookSender {
  readonly #agent: ReturnType<typeof createAgent>;
  readonly #fetch: Fetch;

  constructor(allowPrivateUrls: () => boolean) {
    const refuses = (address: string) => !allowPrivateUrls() && isPrivateAddress(address);
    this.#agent = createAgent({ refuses, connectTimeoutMs: TIMEOUT_MS });
    this.#fetch = createFetch(this.#agent);
  }

  /** Makes one attempt. Never rejects. */
  async send(
    { url, secret, old_secret: old, old_secret_until: oldUntil }: Webhook,
    message: Omit<Outgoing, 'timestamp'>,
    { headersOf, stop }: Pick<WebhookFormat, 'headersOf'> & { stop?: AbortSignal },
  ): Promise<SendResult> {
    const timestamp = Date.now();
    const isOldValid = old !== null && oldUntil !== null && Date.parse(oldUntil) > timestamp;
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    try {
      const response = await this.#fetch(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'user-agent': 'everturn',
          ...headersOf({ ...message, timestamp }, isOldValid ? [secret, old] : [secret]),
        },
        body: message.body,
        redirect: 'manual',
        signal: stop ? AbortSignal.any([stop, timeout]) : timeout,
      });
      // The response body is not read.
      await response.body?.cancel();
      const { status } = response;
      return { responseStatus: status, error: response.ok ? null : `answered with HTTP ${status}` };
    } catch (error) {
      return { responseStatus: null, error: timeout.aborted ? NO_RESPONSE : reasonOf(error) };
    }
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

const NO_RESPONSE = `did not answer within ${TIMEOUT_MS / 1000} s`;

function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof RefusedAddressError
    ? 'is at a private address: set EVERTURN_ALLOW_PRIVATE_URLS=true on the workers to allow that'
    : failureReason(error);
}
