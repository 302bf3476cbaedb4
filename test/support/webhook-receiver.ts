import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { expect } from 'vitest';
import { webhookMessage, type WebhookMessage } from '../../src/api/sessions/wire/webhooks.ts';
import { keptPort } from './kept-port.ts';

interface Received {
  headers: IncomingHttpHeaders;
  body: string;
}

/** A receiver of webhooks, which may be down for a while. */
export class WebhookReceiver {
  /** All requests so far, also those that it did not accept. */
  readonly requests: Received[] = [];
  /** The reactions to the next requests, one each; then it accepts them. */
  readonly next: ((response: ServerResponse) => void)[] = [];
  readonly url: string;
  readonly #port: number;
  #server: Server | undefined;

  private constructor(port: number) {
    this.#port = port;
    this.url = `http://127.0.0.1:${port}/hook`;
  }

  /** A receiver that refuses connections until it is started. */
  static async prepare(): Promise<WebhookReceiver> {
    return new WebhookReceiver(await keptPort());
  }

  static async start(): Promise<WebhookReceiver> {
    const receiver = await WebhookReceiver.prepare();
    await receiver.start();
    return receiver;
  }

  /** Holds the next request. Resolves with its response when it has come. */
  holdNext(): Promise<ServerResponse> {
    const { promise, resolve } = Promise.withResolvers<ServerResponse>();
    this.next.push(resolve);
    return promise;
  }

  async start(): Promise<void> {
    this.#server = createServer((request, response) => {
      void text(request).then((body) => {
        this.requests.push({ headers: request.headers, body });
        const behave = this.next.shift() ?? ((one: ServerResponse) => one.writeHead(204).end());
        behave(response);
      });
    }).listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  async stop(): Promise<void> {
    if (!this.#server?.listening) return;
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  /** The messages so far, each checked against the declaration and, by another implementation, its signature. */
  messages(secret: string): WebhookMessage[] {
    return this.requests.map(({ headers, body }) => {
      const signed = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]));
      const message = new Webhook(secret).verify(body, signed);
      expect(webhookMessage.parse(message)).toEqual(message);
      expect(headers['content-type']).toBe('application/json');
      expect(webhookMessage.parse(message).id).toBe(headers['webhook-id']);
      return webhookMessage.parse(message);
    });
  }

  /** The ids of the messages, in the order of their requests. */
  get ids(): string[] {
    return this.requests.map(({ headers }) => String(headers['webhook-id']));
  }
}
