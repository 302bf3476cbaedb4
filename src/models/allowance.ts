import type { ProviderLimits } from './provider-file.ts';

export interface AllowedCall {
  id: string;
  /** An estimate of its tokens. */
  tokens: number;
}

/** What a provider's limits currently allow. */
export interface Allowance {
  /**
   * Takes a call's share, if the limits allow it. Returns the milliseconds after which to ask again, 0 if it was taken.
   */
  take: (call: AllowedCall) => Promise<number>;
  /** Ends a taken call, and corrects its estimate to the tokens that it `used`; undefined if the call was not made. */
  giveBack: (call: AllowedCall, used?: number) => Promise<void>;
}

const MINUTE_MS = 60_000;

/** When a full provider is asked again, unless a call of this process ends before. */
const FULL_WAIT_MS = 250;

/** The limits of the calls of this process. Rates are buckets that hold a minute's worth. */
export function localAllowance(limits: ProviderLimits, now: () => number = Date.now): Allowance {
  const requests = new Bucket(limits.requestsPerMinute, now);
  const tokens = new Bucket(limits.tokensPerMinute, now);
  let running = 0;
  return {
    take: (call) => {
      if (running >= limits.concurrency) return Promise.resolve(FULL_WAIT_MS);
      const wait = Math.max(requests.waitFor(1), tokens.waitFor(call.tokens));
      if (wait > 0) return Promise.resolve(wait);
      requests.take(1);
      tokens.take(call.tokens);
      running += 1;
      return Promise.resolve(0);
    },
    giveBack: (call, used) => {
      running -= 1;
      tokens.take((used ?? 0) - call.tokens);
      if (used === undefined) requests.take(-1);
      return Promise.resolve();
    },
  };
}

class Bucket {
  readonly #perMinute: number;
  readonly #now: () => number;
  #level: number;
  #at: number;

  constructor(perMinute: number, now: () => number) {
    this.#perMinute = perMinute;
    this.#now = now;
    this.#level = perMinute;
    this.#at = now();
  }

  /** The milliseconds until the bucket holds `amount`, or is full: larger amounts leave it in debt. */
  waitFor(amount: number): number {
    if (this.#perMinute === Infinity) return 0;
    const now = this.#now();
    this.#level = Math.min(this.#perMinute, this.#level + ((now - this.#at) * this.#perMinute) / MINUTE_MS);
    this.#at = now;
    const missing = Math.min(amount, this.#perMinute) - this.#level;
    return missing > 0 ? Math.ceil((missing * MINUTE_MS) / this.#perMinute) : 0;
  }

  take(amount: number): void {
    this.#level -= amount;
  }
}
