import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { TurnProjection } from '../core/projection.ts';
import type { HistoryEvent } from '../core/history.ts';
import { backoffMs } from '../lib/backoff.ts';
import type { TurnHistory } from '../temporal/history.ts';

/** How many turns are kept. The state of one takes some KB, beside its last message. */
const MAX_TURNS = 500;

/** Events per request for what is new: a command and the workflow task that records it are seven. */
const PAGE_SIZE = 10;

/** The pauses between two requests of a caller that waits, in milliseconds. */
const PAUSES = { first: 10, max: 250 };

interface Wait {
  until: (turn: TurnProjection) => boolean;
  /** Ends the wait, which throws. */
  signal: AbortSignal;
}

/**
 * The states of running turns for those who send them commands. What is new in a history is added to what this process
 * has read before, so a command to a turn of many steps costs as much as one to a turn that has just begun.
 */
export class RunningTurns {
  readonly #history: Pick<TurnHistory, 'read' | 'readSince'>;
  readonly #turns = new LRUCache<string, RunningTurn>({ max: MAX_TURNS });

  constructor(history: Pick<TurnHistory, 'read' | 'readSince'>) {
    this.#history = history;
  }

  /**
   * The current state of a turn or, with `wait`, the first one that `until` accepts, or that of the end of the turn. Later
   * calls update the returned object.
   */
  async state(turnId: string, wait?: Wait): Promise<TurnProjection> {
    const turn = this.#turns.get(turnId) ?? new RunningTurn(this.#history, turnId);
    this.#turns.set(turnId, turn);
    for (let attempt = 0; ; attempt++) {
      try {
        await turn.catchUp();
      } catch (error) {
        // Its state may lack what could not be read.
        this.#forget(turnId, turn);
        throw error;
      }
      const { projection } = turn;
      if (projection.done) this.#forget(turnId, turn);
      if (!wait || projection.done || wait.until(projection)) return projection;
      await sleep(backoffMs(attempt, PAUSES), undefined, { signal: wait.signal });
    }
  }

  #forget(turnId: string, turn: RunningTurn): void {
    if (this.#turns.peek(turnId) === turn) this.#turns.delete(turnId);
  }
}

class RunningTurn {
  readonly projection = new TurnProjection();
  readonly #history: Pick<TurnHistory, 'read' | 'readSince'>;
  readonly #turnId: string;
  /** The run that was read last, up to the event `#lastEventId`. */
  #runId: string | undefined;
  #lastEventId = 0;
  #last: Promise<void> = Promise.resolve();

  constructor(history: Pick<TurnHistory, 'read' | 'readSince'>, turnId: string) {
    this.#history = history;
    this.#turnId = turnId;
  }

  /** Adds what the history has by now. One read follows the other. */
  catchUp(): Promise<void> {
    const read = this.#last.then(() => this.#read());
    this.#last = read.catch(() => undefined);
    return read;
  }

  async #read(): Promise<void> {
    if (this.#runId === undefined) {
      for await (const page of this.#history.read(this.#turnId)) this.#add(page.events, page.lastEventId);
    }
    let runId: string | undefined;
    // A run that has continued as new is followed by another.
    while (this.#runId !== undefined && runId !== this.#runId && !this.projection.done) {
      runId = this.#runId;
      const page = await this.#history.readSince(this.#turnId, runId, this.#lastEventId, PAGE_SIZE);
      this.#add(page.events, page.lastEventId);
    }
  }

  #add(events: HistoryEvent[], lastEventId: number): void {
    this.#lastEventId = lastEventId;
    for (const event of events) {
      this.projection.feed(event);
      if (event.type === 'started') this.#runId = event.runId;
      if (event.type !== 'continued') continue;
      this.#runId = event.runId;
      this.#lastEventId = 0;
    }
  }
}
