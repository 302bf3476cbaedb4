import type { TurnStart } from './history.ts';
import { refuseInput, type Refusal } from './input-rules.ts';
import type { Waiting } from './records/pending.ts';
import {
  COMMAND_LIFETIME_MS,
  type CancelCommand,
  type CreateTurnCommand,
  type SeenTurn,
  type SessionTurnsState,
  type Tip,
  type TurnAccepted,
  type TurnCreation,
  type TurnEnqueued,
} from './session.ts';
import { insertQueued, isForQueue, nextInQueue, refuseQueued, type BeginTurn, type QueuedTurn } from './turn-queue.ts';
import { isAnyOpen, waitingOf } from './turn-result.ts';

/** What becomes of a command that creates a turn. */
export type CreationStep =
  | { refusal: Refusal }
  /** The running turn with this id is to be cancelled. When it has ended, the command is decided again. */
  | { stops: string }
  /** The turn is to be started. `undo` reverts that if it cannot be started. */
  | { start: TurnStart; creation: TurnCreation; undo: () => void };

/** The turn of the queue that begins. `undo` reverts that if it has closed in the queue. */
interface Beginning {
  turnId: string;
  begin: BeginTurn;
  undo: () => void;
}

/** The length of a session's history, which decides when its workflow continues as new; the size is in bytes. */
interface HistoryLength {
  continueAsNewSuggested: boolean;
  historyLength: number;
  historySize: number;
}

type PreviousTurn = Pick<Tip, 'turnId'> & Waiting;

/** Beyond these a session continues as new although a turn is open. */
const MAX_HISTORY_EVENTS = 10_000;
const MAX_HISTORY_BYTES = 20 * 1024 * 1024;

const CLOSED: Refusal = { code: 'session_closed', message: 'the session is closed' };
const RUNNING: Refusal = {
  code: 'turn_running',
  message: 'another turn is running: send this again when it has ended, or with another on_running',
};
const MAY_NOT_CANCEL: Refusal = {
  code: 'forbidden',
  message: 'this would cancel the running turn, which your role does not allow: send it again when that turn has ended',
};
const EXPIRED: Refusal = { code: 'request_expired', message: 'the request took too long to arrive: send it again' };

/**
 * The turns of a session: the newest one, those that wait in the queue, and what becomes of each command, as a state
 * machine without time and I/O of its own. The session's workflow carries out what it decides. `now` is in milliseconds
 * since 1970.
 */
export class SessionTurns {
  readonly #sessionId: string;
  #state: SessionTurnsState;

  constructor(
    sessionId: string,
    state: SessionTurnsState = { tip: null, open: false, closed: false, queue: [], newest: null },
  ) {
    this.#sessionId = sessionId;
    this.#state = state;
  }

  get state(): SessionTurnsState {
    return this.#state;
  }

  /** The id of the turn that runs. */
  get running(): string | undefined {
    return this.#state.open ? this.#state.tip?.turnId : undefined;
  }

  get isAnyQueued(): boolean {
    return this.#state.queue.length > 0;
  }

  /** Whether nothing runs, is queued, or waits for a person or a client. */
  get isAtRest(): boolean {
    const { tip, open } = this.#state;
    return !open && !this.isAnyQueued && (tip === null || !isAnyOpen(tip));
  }

  load(state: SessionTurnsState): void {
    this.#state = state;
  }

  runs(turnId: string): boolean {
    return this.running === turnId;
  }

  /** Prefers to continue between turns, but continues during one before the history grows too long. */
  mayContinue({ continueAsNewSuggested, historyLength, historySize }: HistoryLength): boolean {
    const isLong = historyLength >= MAX_HISTORY_EVENTS || historySize >= MAX_HISTORY_BYTES;
    const isBusy = this.#state.open || this.isAnyQueued;
    return isLong || (continueAsNewSuggested && !isBusy);
  }

  /** The result of a command that was carried out before, if its turn is the newest one, or waits in the queue. */
  known(turnId: string): TurnCreation | undefined {
    const { tip, queue } = this.#state;
    if (tip?.turnId === turnId) return accepted(tip);
    const queued = queue.find((one) => one.turnId === turnId);
    return queued && enqueued(queued);
  }

  /**
   * Whether the turn may exist: its id is not newer than the newest one, so another may have followed, or the command
   * is too old to start it. Temporal repeats such commands to a run that results from an operator's reset.
   */
  mayExistAlready(command: CreateTurnCommand, now: number): boolean {
    const { newest } = this.#state;
    return (newest !== null && command.turnId <= newest) || isExpired(command, now);
  }

  /**
   * The running turn, if a command is rejected or queued because of it, instead of cancelling it: whether it has ended
   * must be known. A client reads the end of a turn in its log, and may answer it before the session has been notified.
   */
  mustHaveEnded({ sparesRunning, onRunning, input }: CreateTurnCommand): string | undefined {
    const isSpared =
      sparesRunning === true || onRunning !== undefined || input.some(({ type }) => type !== 'user.message');
    return isSpared ? this.running : undefined;
  }

  /** Why a command is rejected, if the state alone decides that. */
  refuseAtOnce(command: CreateTurnCommand, now: number): Refusal | undefined {
    const { previous, input } = command;
    const { tip, open, closed } = this.#state;
    if (this.mayExistAlready(command, now)) return undefined;
    if (closed) return CLOSED;
    // The running turn may have ended, with pending calls.
    if (open || this.isAnyQueued) return undefined;
    const isTip = previous.turn === 'last' || (previous.turn === 'id' && previous.turnId === tip?.turnId);
    return isTip ? refuseInput(input, tip?.pending ?? [], Date.parse(command.createdAt)) : undefined;
  }

  /**
   * The id of the earlier turn that a command forks, since only its log shows what waits on it; undefined if the
   * command forks none, is queued or is rejected.
   */
  forkOf(command: CreateTurnCommand, now: number): string | undefined {
    const { previous } = command;
    if (previous.turn !== 'id' || previous.turnId === this.#state.tip?.turnId) return undefined;
    return isForQueue(command, this.#state) || this.#refuse(command, now) ? undefined : previous.turnId;
  }

  /** Decides a command. `forked` is the turn that it forks, if that is one of the session. */
  create(command: CreateTurnCommand, forked: SeenTurn | undefined, now: number): CreationStep {
    const refusal = this.#refuse(command, now);
    if (refusal) return { refusal };
    if (isForQueue(command, this.#state)) return this.#enqueue(command);
    const previous = this.#previous(command.previous, forked);
    if (previous && 'code' in previous) return { refusal: previous };
    // The turn resolves the calls that wait at its creation.
    const refused = refuseInput(command.input, previous?.pending ?? [], Date.parse(command.createdAt));
    if (refused) return { refusal: refused };
    const { running } = this;
    if (running === undefined) return this.#start(command, previous);
    if (command.onRunning) return { refusal: RUNNING };
    if (command.sparesRunning) return { refusal: MAY_NOT_CANCEL };
    return { stops: running };
  }

  /** Takes the next turn from the queue if it may begin, and makes it the newest one. */
  beginNext(): Beginning | undefined {
    const next = nextInQueue(this.#state);
    if (!next) return undefined;
    const { turnId, isRoot } = next;
    const { tip } = this.#state;
    const begin = { sequence: nextSequence(tip), previousTurnId: isRoot ? null : (tip?.turnId ?? null) };
    this.unqueue(turnId);
    return { turnId, begin, undo: this.#makeTip({ turnId, ...begin }) };
  }

  /** Makes an existing turn the newest one, unless another has followed, or adds it to the queue. */
  adopt(turn: SeenTurn): TurnCreation {
    const { turnId, previousTurnId, sequence, open, queued, ...waiting } = turn;
    this.#state.newest = later(this.#state.newest, turnId);
    if (queued) {
      if (open) this.#state.queue = insertQueued(this.#state.queue, { turnId, ...queued });
      return { turnId, queued };
    }
    if (sequence >= nextSequence(this.#state.tip)) {
      this.#state.tip = { turnId, previousTurnId, sequence, ...waitingOf(waiting) };
      this.#state.open = open;
    }
    return { turnId, previousTurnId, sequence };
  }

  /** Closes the session if the command says so. Returns the turns to cancel; those of the queue leave it. */
  cancel({ close, upTo, turnId: only }: CancelCommand): { queued: string[]; running: string | undefined } {
    if (close) this.#state.closed = true;
    const isMeant = (turnId: string) => (only === undefined ? turnId <= upTo : turnId === only);
    const { running } = this;
    const queued = this.#state.queue.map(({ turnId }) => turnId).filter(isMeant);
    for (const turnId of queued) this.unqueue(turnId);
    return { queued, running: running !== undefined && isMeant(running) ? running : undefined };
  }

  /** A turn has left the queue. */
  unqueue(turnId: string): void {
    this.#state.queue = this.#state.queue.filter((queued) => queued.turnId !== turnId);
  }

  /** The running turn has ended. */
  ended(waiting: Waiting): void {
    this.#state.open = false;
    if (this.#state.tip) this.#state.tip = { ...accepted(this.#state.tip), ...waitingOf(waiting) };
  }

  /**
   * A turn has ended before it could begin, so the newest turn is another one: `tip` and `open`, read after the end.
   * @returns false if the turn no longer runs: the state that was read may be older than what runs now
   */
  forget(turnId: string, { tip, open }: Pick<SessionTurnsState, 'tip' | 'open'>): boolean {
    if (!this.runs(turnId)) return false;
    Object.assign(this.#state, { tip, open });
    return true;
  }

  #refuse(command: CreateTurnCommand, now: number): Refusal | undefined {
    if (this.#state.closed) return CLOSED;
    return isExpired(command, now) ? EXPIRED : undefined;
  }

  #previous(previous: CreateTurnCommand['previous'], forked: SeenTurn | undefined): PreviousTurn | Refusal | null {
    const { tip } = this.#state;
    if (previous.turn === 'none') return null;
    if (previous.turn === 'last' || previous.turnId === tip?.turnId) return tip;
    const { turnId } = previous;
    if (!forked || forked.queued) return { code: 'turn_not_found', message: `the session has no turn ${turnId}` };
    return { turnId, ...waitingOf(forked) };
  }

  #start(command: CreateTurnCommand, previous: PreviousTurn | null): CreationStep {
    const { previous: _, sparesRunning: __, onRunning: ___, ...rest } = command;
    const start: TurnStart = {
      ...rest,
      sessionId: this.#sessionId,
      sequence: nextSequence(this.#state.tip),
      previousTurnId: previous?.turnId ?? null,
      ...(previous && isAnyOpen(previous) && { resumes: waitingOf(previous) }),
    };
    const creation = accepted(start);
    return { start, creation, undo: this.#makeTip(creation) };
  }

  /** The turn's workflow is started at once, and its history is the turn's log from then on. */
  #enqueue(command: CreateTurnCommand): CreationStep {
    const refusal = refuseQueued(command, this.#state);
    if (refusal) return { refusal };
    const { previous, sparesRunning: _, onRunning: __, ...rest } = command;
    const { turnId } = command;
    const { queue, newest } = this.#state;
    const number = (queue.at(-1)?.number ?? 0) + 1;
    const queued = { number, ...(previous.turn === 'none' && { isRoot: true as const }) };
    this.#state.queue = [...queue, { turnId, ...queued }];
    this.#state.newest = later(newest, turnId);
    const waiting = { ...queued, position: queue.length + 1 };
    const start = {
      ...rest,
      sessionId: this.#sessionId,
      sequence: 0,
      previousTurnId: null,
      queued: waiting,
    };
    return { start, creation: { turnId, queued }, undo: () => this.unqueue(turnId) };
  }

  /** Makes a turn that is about to run the newest one. Returns a function that undoes it. */
  #makeTip(turn: TurnAccepted): () => void {
    const { tip: before, newest } = this.#state;
    this.#state.tip = { ...turn, pending: [] };
    this.#state.open = true;
    this.#state.newest = later(newest, turn.turnId);
    return () => {
      if (this.#state.tip?.turnId !== turn.turnId) return;
      this.#state.tip = before;
      this.#state.open = false;
    };
  }
}

function nextSequence(tip: Tip | null): number {
  return (tip?.sequence ?? 0) + 1;
}

function accepted({ turnId, previousTurnId, sequence }: TurnAccepted): TurnAccepted {
  return { turnId, previousTurnId, sequence };
}

function enqueued({ turnId, ...queued }: QueuedTurn): TurnEnqueued {
  return { turnId, queued };
}

function later(newest: string | null, turnId: string): string {
  return newest !== null && newest > turnId ? newest : turnId;
}

function isExpired({ createdAt }: CreateTurnCommand, now: number): boolean {
  return now - Date.parse(createdAt) > COMMAND_LIFETIME_MS;
}
