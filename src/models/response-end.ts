import { AFTER_FINISH_MS } from './guarded-response.ts';

/**
 * Ends a response some time after the last event of its message, for adapters that take a message as complete when the
 * connection is closed: some servers and gateways keep it open.
 */
export class ResponseEnd {
  #close: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** A copy of the response that can be ended. If a message takes several requests, the last response is ended. */
  watch(response: Response): Response {
    const passing = new TransformStream<Uint8Array, Uint8Array>({
      start: (controller) => {
        this.#close = () => controller.terminate();
      },
    });
    return new Response(response.body?.pipeThrough(passing), response);
  }

  /** The last event was received. */
  reached(): void {
    this.#timer ??= setTimeout(() => this.#close?.(), AFTER_FINISH_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
