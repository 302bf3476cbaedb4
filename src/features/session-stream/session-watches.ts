import type { Logger } from 'pino';
import type { SessionNews, TurnPositions } from './turn-positions.ts';
import { withoutContext } from '../../telemetry/log-context.ts';
import type { LiveBus } from '../../live/bus.ts';

/** The interval of queries for all watched sessions, because hints may be lost. */
const POLL_MS = 5_000;

/** Sessions per query. */
const BATCH_SIZE = 100;

/** Notifies one reader of a session of new turns, and of its deletion. */
export class SessionWatch implements Disposable {
  readonly #onClose: (watch: SessionWatch) => void;
  readonly #onDeleted: () => void;
  #hasNews = false;
  #waiting: { isOld: (news: SessionNews) => boolean; resolve: () => void } | undefined;
  #isClosed = false;

  constructor(onClose: (watch: SessionWatch) => void, onDeleted: () => void) {
    this.#onClose = onClose;
    this.#onDeleted = onDeleted;
  }

  /**
   * Waits for changes that are new for the reader: `isOld` is true for those that it already has. Resolves at once if
   * there were changes since the last call, and when the watch is closed. One reader waits at a time.
   */
  async untilNews(isOld: (news: SessionNews) => boolean): Promise<void> {
    if (!this.#hasNews && !this.#isClosed) {
      await new Promise<void>((resolve) => {
        this.#waiting = { isOld, resolve };
      });
    }
    this.#hasNews = false;
  }

  /** Reports the state of the session; undefined if it was deleted. */
  report(news: SessionNews | undefined): void {
    if (!news) {
      this.#onDeleted();
      return;
    }
    if (this.#waiting?.isOld(news)) return;
    this.#hasNews = true;
    this.#wake();
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#onClose(this);
    this.#wake();
  }

  #wake(): void {
    this.#waiting?.resolve();
    this.#waiting = undefined;
  }
}

interface Watched {
  watches: Set<SessionWatch>;
  stopHints: () => void;
}

/**
 * Watches sessions for the readers of this process, and for the connections that end with them: one subscription to the
 * hints of each session, and one periodic query for all of them. A session without readers costs nothing.
 */
export class SessionWatches {
  readonly #catalog: { turnPositions: TurnPositions };
  readonly #bus: LiveBus;
  readonly #log: Logger;
  readonly #watched = new Map<string, Watched>();
  #isPolling = false;

  constructor({ catalog, bus, log }: { catalog: { turnPositions: TurnPositions }; bus: LiveBus; log: Logger }) {
    this.#catalog = catalog;
    this.#bus = bus;
    this.#log = log;
  }

  /** Watches a session until the watch is disposed of. `onDeleted` may be called several times. */
  watch(sessionId: string, onDeleted: () => void): SessionWatch {
    const watched = this.#watched.get(sessionId) ?? this.#begin(sessionId);
    const watch = new SessionWatch((closed) => {
      watched.watches.delete(closed);
      if (watched.watches.size > 0 || this.#watched.get(sessionId) !== watched) return;
      this.#watched.delete(sessionId);
      watched.stopHints();
    }, onDeleted);
    watched.watches.add(watch);
    return watch;
  }

  #begin(sessionId: string): Watched {
    const watched = {
      watches: new Set<SessionWatch>(),
      stopHints: this.#bus.onHint(`session:${sessionId}`, () => void this.#check([sessionId])),
    };
    this.#watched.set(sessionId, watched);
    if (!this.#isPolling) this.#poll();
    return watched;
  }

  /** Checks all sessions after each interval, as long as there are any. */
  #poll(): void {
    this.#isPolling = this.#watched.size > 0;
    if (!this.#isPolling) return;
    const next = async (): Promise<void> => {
      const ids = [...this.#watched.keys()];
      for (let from = 0; from < ids.length; from += BATCH_SIZE) await this.#check(ids.slice(from, from + BATCH_SIZE));
      this.#poll();
    };
    withoutContext(() => setTimeout(() => void next(), POLL_MS).unref());
  }

  /** Never rejects: the next poll repeats a failed check. */
  async #check(sessionIds: string[]): Promise<void> {
    try {
      const news = new Map((await this.#catalog.turnPositions.news(sessionIds)).map((each) => [each.id, each]));
      for (const id of sessionIds) {
        for (const watch of this.#watched.get(id)?.watches ?? []) watch.report(news.get(id));
      }
    } catch (error) {
      this.#log.warn({ err: error }, 'cannot look for changes of the watched sessions; retrying');
    }
  }
}
