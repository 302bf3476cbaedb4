import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { HistoryEvent } from '../core/history.ts';
import { Turn } from '../core/turn.ts';
import type { CallKey } from '../core/tool-records.ts';
import type { Verdict } from '../core/turn-command.ts';
import { backoffMs } from '../lib/backoff.ts';
import type { TurnHistory } from '../temporal/history.ts';

/** How many turns are kept. The state of one takes some KB, beside its last message. */
const MAX_TURNS = 500;

/** Events per request for what is new: a command and the workflow task that records it are seven. */
const PAGE_SIZE = 10;

/** The pauses between two requests of a caller that waits, in milliseconds. */
const PAUSES = { first: 10, max: 250 };

interface Wait {
  /** Default: the end of the turn. */
  until?: () => boolean;
  /** Ends the wait, which throws. */
  signal: AbortSignal;
}

/** The decision of a turn on a command. */
interface Judgement {
  refusal: Verdict;
  /** The calls whose answers the same subject had given before. */
  repeated: CallKey[];
}

interface CommandToSend {
  id: string;
  /** False if the turn has ended. */
  send: () => Promise<boolean>;
  /** Ends the wait, which throws. */
  signal: AbortSignal;
}

/**
 * The states of running turns, for commands to them. New events of a history are added to the state that this process
 * has read before, so a command to a turn of many steps costs as much as one to a turn that has just begun.
 */
export class RunningTurns {
  readonly #history: Pick<TurnHistory, 'read' | 'readSince'>;
  readonly #turns = new LRUCache<string, RunningTurn>({ max: MAX_TURNS });
  /** The commands that are being sent; repetitions have the same id. Nothing else is kept of a command. */
  readonly #sent = new Set<{ id: string; judgement?: Judgement }>();

  constructor(history: Pick<TurnHistory, 'read' | 'readSince'>) {
    this.#history = history;
  }

  /**
   * The current state of a turn or, with `wait`, the first state in which `until` is true, or the state at the turn's
   * end. Later calls update the returned object.
   */
  async state(turnId: string, wait?: Wait): Promise<Turn> {
    const turn =
      this.#turns.get(turnId) ?? new RunningTurn(turnId, this.#history, (state) => this.#taskCompleted(state));
    this.#turns.set(turnId, turn);
    for (let attempt = 0; ; attempt++) {
      try {
        await turn.catchUp();
      } catch (error) {
        // Its state may lack the events that could not be read.
        this.#forget(turnId, turn);
        throw error;
      }
      const { state } = turn;
      if (state.done) this.#forget(turnId, turn);
      if (!wait || state.done || wait.until?.()) return state;
      await sleep(backoffMs(attempt, PAUSES), undefined, { signal: wait.signal });
    }
  }

  /** Sends a command to a turn, and waits for the turn's decision; undefined if the turn ends before. */
  async command(
    turnId: string,
    { id, send, signal }: CommandToSend,
  ): Promise<(Judgement & { turn: Turn }) | undefined> {
    const sent: { id: string; judgement?: Judgement } = { id };
    this.#sent.add(sent);
    try {
      if (!(await send())) return undefined;
      const turn = await this.state(turnId, { until: () => sent.judgement !== undefined, signal });
      return sent.judgement && { turn, ...sent.judgement };
    } finally {
      this.#sent.delete(sent);
    }
  }

  #taskCompleted({ judged: { verdicts, repeated } }: Turn): void {
    if (verdicts.size === 0) return;
    for (const sent of this.#sent) {
      const { id } = sent;
      if (verdicts.has(id)) sent.judgement = { refusal: verdicts.get(id), repeated: repeated.get(id) ?? [] };
    }
  }

  #forget(turnId: string, turn: RunningTurn): void {
    if (this.#turns.peek(turnId) === turn) this.#turns.delete(turnId);
  }
}

class RunningTurn {
  readonly state = new Turn();
  readonly #history: Pick<TurnHistory, 'read' | 'readSince'>;
  readonly #turnId: string;
  /** The run that was read last, up to the event `#lastEventId`. */
  #runId: string | undefined;
  #lastEventId = 0;
  #last: Promise<void> = Promise.resolve();
  readonly #onTask: (state: Turn) => void;

  constructor(turnId: string, history: Pick<TurnHistory, 'read' | 'readSince'>, onTask: (state: Turn) => void) {
    this.#history = history;
    this.#turnId = turnId;
    this.#onTask = onTask;
  }

  /** Adds the new events of the history. Reads run one after the other. */
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
    while (this.#runId !== undefined && runId !== this.#runId && !this.state.done) {
      runId = this.#runId;
      const page = await this.#history.readSince(this.#turnId, runId, this.#lastEventId, PAGE_SIZE);
      this.#add(page.events, page.lastEventId);
    }
  }

  #add(events: HistoryEvent[], lastEventId: number): void {
    this.#lastEventId = lastEventId;
    for (const event of events) {
      this.state.feed(event);
      if (event.type === 'taskCompleted') this.#onTask(this.state);
      if (event.type === 'started') this.#runId = event.runId;
      if (event.type !== 'continued') continue;
      this.#runId = event.runId;
      this.#lastEventId = 0;
    }
  }
}
