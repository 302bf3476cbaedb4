import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import type { Usage } from '../core/records/usage.ts';
import { waitOrAbort } from '../lib/abort.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { AllowedCall, Allowance } from './allowance.ts';
import { estimateInput } from './input-breakdown.ts';
import type { FoundModel, ModelChunk, ModelProvider, ModelRequest } from './provider.ts';

interface LimitedModelOptions {
  allowance: Allowance;
  /** The provider's name. */
  name: string;
  log: Logger;
  metrics: Metrics;
}

/** Wraps a provider: its calls wait until the provider's limits allow them, first in, first out. */
export class LimitedModel implements ModelProvider {
  readonly #provider: ModelProvider;
  readonly #options: LimitedModelOptions;
  /** Resolves when the last call in the queue has been admitted, or has left. */
  #queue: Promise<void> = Promise.resolve();
  #waiting = 0;
  /** Whether the wait was logged: one line for all calls that wait together. */
  #isLogged = false;
  #wake: () => void = () => undefined;

  constructor(provider: ModelProvider, options: LimitedModelOptions) {
    this.#provider = provider;
    this.#options = options;
  }

  async *stream(request: ModelRequest, signal: AbortSignal): AsyncGenerator<ModelChunk> {
    const call = { id: randomUUID(), tokens: estimateInput(request) };
    if (!(await this.#admit(call, signal))) return;
    let usage: Usage | undefined;
    try {
      // The time of the wait does not count as silence of the provider.
      yield {};
      for await (const chunk of this.#provider.stream(request, signal)) {
        if (chunk.usage) ({ usage } = chunk);
        yield chunk;
      }
    } finally {
      const used = usage ? usage.inputTokens + usage.outputTokens : call.tokens;
      void this.#options.allowance.giveBack(call, used).then(() => this.#wake());
    }
  }

  find(model: string): Promise<FoundModel | undefined> {
    return this.#provider.find(model);
  }

  /** Waits until the call may begin. False if it was aborted. */
  async #admit(call: AllowedCall, signal: AbortSignal): Promise<boolean> {
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
