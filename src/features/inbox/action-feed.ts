import type { Logger } from 'pino';
import type { ActionEvent, Actions } from './action-rows.ts';
import type { LiveBus } from '../../live/bus.ts';

/** Hints may be lost, so the catalog is queried this often while there are readers. */
const POLL_MS = 1_000;

/** Events per query, and the number of newest events that are cached for all readers: each has up to 64 KiB. */
const PAGE = 100;

interface ActionFeedOptions {
  catalog: { actions: Actions };
  bus: Pick<LiveBus, 'onHint'>;
  log: Logger;
}

/** The cached events: all after `from`, up to `through`. */
interface Recent {
  from: number;
  through: number;
  events: ActionEvent[];
}

/**
 * The changes of actions, for the readers of this process. One query finds the new events for all of them; a reader
 * that is further behind reads the catalog at its own pace.
 */
export class ActionFeed {
  readonly #options: ActionFeedOptions;
  readonly #readers = new Set<() => void>();
  #recent: Recent | undefined;
  #timer: NodeJS.Timeout | undefined;
  #unsubscribe: () => void = () => undefined;
  #isPolling = false;
  #isStale = false;
  #isFailing = false;

  constructor(options: ActionFeedOptions) {
    this.#options = options;
  }

  /** Calls `onNews` when there are new events, until the returned function is called. */
  open(onNews: () => void): () => void {
    this.#readers.add(onNews);
    if (this.#readers.size === 1) {
      this.#timer = setInterval(() => void this.#poll(), POLL_MS).unref();
      this.#unsubscribe = this.#options.bus.onHint('change:actions', () => void this.#poll());
      void this.#poll();
    }
    return () => {
      this.#readers.delete(onNews);
      if (this.#readers.size > 0) return;
      clearInterval(this.#timer);
      this.#unsubscribe();
      this.#recent = undefined;
    };
  }

  /** The next events after a number, in order, and the number up to which there are no others. */
  async after(sequence: number): Promise<{ events: ActionEvent[]; through: number }> {
    const { from = Infinity, through = sequence, events: known = [] } = this.#recent ?? {};
    if (sequence >= from) return { events: known.filter((event) => event.sequence > sequence), through };
    const events = await this.#options.catalog.actions.events(sequence, PAGE);
    // If none are found, the events up to `through` were deleted with their sessions.
    return { events, through: events.at(-1)?.sequence ?? through };
  }

  /** Whether there may be events after a number. */
  isBehind(sequence: number): boolean {
    return this.#recent !== undefined && this.#recent.through > sequence;
  }

  async #poll(): Promise<void> {
    this.#isStale = true;
    if (this.#isPolling) return;
    this.#isPolling = true;
    try {
      while (this.#isStale && this.#readers.size > 0) {
        this.#isStale = false;
        if (await this.#catchUp()) for (const onNews of this.#readers) onNews();
      }
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) this.#options.log.warn({ err: error }, 'the events of actions cannot be read; retrying');
      this.#isFailing = true;
    } finally {
      this.#isPolling = false;
    }
  }

  /** Returns whether there are new events. */
  async #catchUp(): Promise<boolean> {
    const { actions } = this.#options.catalog;
    if (!this.#recent) {
      const newest = await actions.newest();
      this.#recent = { from: newest, through: newest, events: [] };
      return true;
    }
    const { from, through, events: known } = this.#recent;
    const added = await actions.events(through, PAGE);
    const last = added.at(-1);
    if (!last) return false;
    // A session was deleted, so its cached events are dropped, too.
    const isErased = added.some(({ action }) => action.detail === null);
    const all = isErased ? [] : [...known, ...added];
    const dropped = all.slice(0, -PAGE).at(-1);
    const start = isErased ? last : dropped;
    this.#recent = { from: start?.sequence ?? from, through: last.sequence, events: all.slice(-PAGE) };
    this.#isStale ||= added.length === PAGE;
    return true;
  }
}
