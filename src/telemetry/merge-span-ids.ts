import type { IdGenerator } from '@opentelemetry/sdk-trace-node';

/** Random ids, but for a span whose id is known before. */
export class SpanIds implements IdGenerator {
  readonly #random: IdGenerator;
  #next: string | undefined;

  constructor(random: IdGenerator) {
    this.#random = random;
  }

  /** Runs `begin`, whose first span gets this id. */
  with<T>(spanId: string, begin: () => T): T {
    this.#next = spanId;
    try {
      return begin();
    } finally {
      this.#next = undefined;
    }
  }

  readonly generateTraceId = (): string => this.#random.generateTraceId();

  readonly generateSpanId = (): string => {
    const id = this.#next ?? this.#random.generateSpanId();
    this.#next = undefined;
    return id;
  };
}
