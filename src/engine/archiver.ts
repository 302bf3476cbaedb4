import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { backoffMs } from '../lib/backoff.ts';
import { withLogContext } from '../telemetry/log-context.ts';
import { TurnNotFound } from './turn-log-reader.ts';

interface ArchiverOptions {
  /** @throws TurnNotFound */
  archive: (turnId: string, signal: AbortSignal) => Promise<unknown>;
  log: Logger;
}

/** The wait before the first attempt: readers of a turn's end have priority, and lists may follow a little later. */
const FIRST_WAIT_MS = 200;
/** Doubled for each further failure. */
const RETRY_MS = 1_000;
const MAX_WAIT_MS = 60_000;
/** After this many failures, most of an hour, the turn is left to housekeeping. */
const MAX_FAILURES = 60;

/**
 * Archives the turns whose end this worker has seen. A worker that stops or dies leaves its turns to housekeeping, so
 * archiving costs no event in any history.
 */
export class Archiver {
  readonly #options: ArchiverOptions;
  readonly #stop = new AbortController();
  readonly #running = new Set<Promise<void>>();

  constructor(options: ArchiverOptions) {
    this.#options = options;
  }

  /** Archives a turn that has ended, a moment later. Never throws. */
  turnEnded(turnId: string, sessionId: string | undefined): void {
    const running = withLogContext({ turnId, sessionId }, () => this.#archive(turnId)).finally(() =>
      this.#running.delete(running),
    );
    this.#running.add(running);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
  }

  async #archive(turnId: string): Promise<void> {
    const { archive, log } = this.#options;
    const { signal } = this.#stop;
    for (let failures = 0; failures < MAX_FAILURES; failures++) {
      try {
        const retryMs = backoffMs(failures, { first: RETRY_MS, max: MAX_WAIT_MS });
        await sleep(failures === 0 ? FIRST_WAIT_MS : retryMs, undefined, { signal });
        await archive(turnId, signal);
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof TurnNotFound) {
          log.warn('a turn was deleted before it was archived');
          return;
        }
        log.warn({ err: error, failures }, 'a turn could not be archived; retrying');
      }
    }
  }
}
