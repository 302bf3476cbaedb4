interface Backoff {
  /** Milliseconds before the first retry. */
  first: number;
  /** Milliseconds that no pause exceeds; default no limit. */
  max?: number;
  /** The share, from 0 to 1, by which a pause may be shorter, at random; default 0. */
  jitter?: number;
}

/** The pause in milliseconds before retry `attempt`, counted from 0: each is twice as long as the one before. */
export function backoffMs(attempt: number, { first, max = Infinity, jitter = 0 }: Backoff): number {
  return Math.min(max, first * 2 ** attempt) * (1 - jitter * Math.random());
}
