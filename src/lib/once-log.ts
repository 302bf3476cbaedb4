import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';

const MAX_KNOWN = 10_000;

/** Logs what is found again and again, such as a damaged record, once in this process. */
export class OnceLog {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #known = new LRUCache<string, true>({ max: MAX_KNOWN });

  constructor(log: Pick<Logger, 'warn'>) {
    this.#log = log;
  }

  /** `key` identifies what is found. */
  warn(key: string, fields: object, message: string): void {
    if (this.#known.has(key)) return;
    this.#known.set(key, true);
    this.#log.warn(fields, message);
  }
}
