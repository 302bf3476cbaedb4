import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import type { Usage } from '../core/records/usage.ts';
import { waitOrAbort } from '../lib/abort.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { AllowedCall, Allowance } from './allowance.ts';
import { estimateInput } from './input-breakdown.ts';
import type { ModelStream } from './provider.ts';

export interface LimitOptions {
  allowance: Allowance;
  /** The provider's name. */
  name: string;
  log: Logger;
  metrics: Metrics;
}

/** Wraps the calls of a provider: they wait until its limits allow them, first in, first out. */
export function limited(stream: ModelStream, options: LimitOptions): ModelStream {
  const queue = new CallQueue(options);
  return async function* (request, signal) {
    const call = { id: randomUUID(), tokens: estimateInput(request) };
    if (!(await queue.admit(call, signal))) return;
    let usage: Usage | undefined;
    try {
      // The time of the wait does not count as silence of the provider.
      yield {};
      for await (const chunk of stream(request, signal)) {
        if (chunk.usage) ({ usage } = chunk);
        yield chunk;
      }
    } finally {
      queue.end(call, usage ? usage.inputTokens + usage.outputTokens : call.tokens);
    }
  };
}

class CallQueue {
  readonly #options: LimitOptions;
  /** Resolves when the last call in the queue has been admitted, or has left. */
  #queue: Promise<void> = Promise.resolve();
  #waiting = 0;
  /** Whether the wait was logged: one line for all calls that wait together. */
  #isLogged = false;
  #wake: () => void = () => undefined;

  constructor(options: LimitOptions) {
    this.#options = options;
  }

  /** Ends a call that has used these tokens. */
  end(call: AllowedCall, used: number): void {
    void this.#options.allowance.giveBack(call, used).then(() => this.#wake());
  }

  /** Waits until the call may begin. False if it was aborted. */
  async admit(call: AllowedCall, signal: AbortSignal): Promise<boolean> {
    const previous = this.#queue;
    const left = Promise.withResolvers<void>();
    this.#queue = left.promise;
    let isFirst = false;
    this.#countWaiting(1);
    try {
      await waitOrAbort(previous, signal);
      isFirst = true;
      for (;;) {
        const wait = await this.#options.allowance.take(call);
        if (wait === 0 && signal.aborted) await this.#options.allowance.giveBack(call);
        if (signal.aborted) return false;
        if (wait === 0) return true;
        this.#noteWait();
        await this.#pause(wait, signal);
      }
    } catch (error) {
      if (signal.aborted) return false;
      throw error;
    } finally {
      this.#countWaiting(-1);
      // A call that leaves the middle of the queue does not let the next one overtake those before it.
      left.resolve(isFirst ? undefined : previous);
    }
  }

  /** Waits for the time, or until a call of this process has ended. */
  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const woken = Promise.withResolvers<void>();
    const timer = setTimeout(() => woken.resolve(), ms);
    this.#wake = () => woken.resolve();
    try {
      await waitOrAbort(woken.promise, signal);
    } finally {
      clearTimeout(timer);
    }
  }

  #noteWait(): void {
    if (this.#isLogged) return;
    this.#isLogged = true;
    this.#options.log.info({ provider: this.#options.name }, 'model calls wait for the limits of their provider');
  }

  #countWaiting(change: 1 | -1): void {
    this.#waiting += change;
    if (this.#waiting === 0) this.#isLogged = false;
    this.#options.metrics.modelCallsWaiting.set({ provider: this.#options.name }, this.#waiting);
  }
}
