import {
  ApplicationFailure,
  CancellationScope,
  condition,
  ContinueAsNew,
  continueAsNew,
  getExternalWorkflowHandle,
  log,
  ParentClosePolicy,
  proxyActivities,
  proxyLocalActivities,
  setHandler,
  startChild,
  TemporalFailure,
  workflowInfo,
  WorkflowIdReusePolicy,
  allHandlersFinished,
} from '@temporalio/workflow';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import type { Activities } from '../activities/index.ts';
import { TURN_RULES, type TurnStart } from '../src/core/history.ts';
import type { Waiting } from '../src/core/records.ts';
import { refuseInput, type Refusal } from '../src/core/input-rules.ts';
import {
  COMMAND_LIFETIME_MS,
  type CancelCommand,
  type CreateTurnCommand,
  type SessionStart,
  type SeenTurn,
  type SessionState,
  type Tip,
  type TurnAccepted,
  type TurnCreation,
  type TurnEnqueued,
} from '../src/core/session.ts';
import {
  insertQueued,
  isForQueue,
  nextInQueue,
  refuseQueued,
  type BeginTurn,
  type QueuedTurn,
} from '../src/core/turn-queue.ts';
import { turnWorkflowId, WORKFLOW_TASK_TIMEOUT } from '../src/core/temporal-names.ts';
import { causeOf, errorMessage } from './errors.ts';
import { beginTurn, cancelSession, createTurn } from './messages.ts';
import { Mutex } from './mutex.ts';
import type { turn } from './turn.ts';
import { inspectTurn, reading, runInBackground, TurnWatch } from './turn-watch.ts';
import { asUpdateFailure, refused } from './update-handlers.ts';

/**
 * A local activity, since all commands wait for it. Others must not be: while a local activity takes several workflow
 * tasks, further events arrive before its result, but in a replay after it, so the replay may take another path. If its
 * worker is lost, the workflow task is lost too, and Temporal retries that with a back-off.
 */
const { loadSession } = proxyLocalActivities<Pick<Activities, 'loadSession'>>(reading);

const { loadSession: reloadSession } = proxyActivities<Pick<Activities, 'loadSession'>>({
  ...reading,
  heartbeatTimeout: '4 seconds',
});

/** Beyond these a session continues as new although a turn is open. */
const MAX_HISTORY_EVENTS = 10_000;
const MAX_HISTORY_BYTES = 20 * 1024 * 1024;

/**
 * A session, which owns the order of its turns. Every command that changes it is an Update or a signal of this
 * workflow. They run one at a time, so two turns never run at once, and answers are checked against the calls that are
 * pending.
 */
export async function session(start: SessionStart): Promise<void> {
  const run = new SessionRun(start);
  setHandler(createTurn, (command) => asUpdateFailure(() => run.createTurn(command)), {
    validator: (command) => run.validateCreateTurn(command),
  });
  setHandler(cancelSession, (command) => asUpdateFailure(() => run.cancel(command)));
  try {
    await run.untilContinued();
  } catch (error) {
    if (error instanceof TemporalFailure || error instanceof ContinueAsNew) throw error;
    // Any other error would fail the workflow task for ever. The next command starts a failed session again.
    throw ApplicationFailure.nonRetryable(errorMessage(error), 'session_failed');
  }
}

class SessionRun {
  readonly #sessionId: string;
  readonly #begins: string | undefined;
  #state: SessionState = { tip: null, open: false, closed: false, queue: [], newest: null };
  #loaded: boolean;
  /** Why the session cannot be loaded. */
  #failure: Error | undefined;
  /** Settles when the last turn has started or begun, or could not. */
  #starting: Promise<void> = Promise.resolve();
  #isStarting = false;
  readonly #commands = new Mutex();
  readonly #watch: TurnWatch;

  constructor({ sessionId, begins, state }: SessionStart) {
    this.#sessionId = sessionId;
    this.#begins = begins;
    this.#loaded = state !== undefined;
    if (state) this.#state = state;
    this.#watch = new TurnWatch({
      sessionId,
      runs: (turnId) => this.#runs(turnId),
      ended: (waiting) => this.#ended(waiting),
      closed: (turnId) => this.#unqueue([turnId]),
      neverBegan: (turnId) => this.#forget(turnId),
    });
  }

  async untilContinued(): Promise<never> {
    if (!this.#loaded) await this.#load();
    const { tip, open } = this.#state;
    if (open && tip) this.#watch.running(tip.turnId);
    this.#advanceLater();
    await condition(() => this.#mayContinue());
    return await continueAsNew<typeof session>({ sessionId: this.#sessionId, state: this.#state });
  }

  /**
   * If the session cannot be loaded (it was deleted, or the catalog is damaged), fails after all commands have failed.
   */
  async #load(): Promise<void> {
    try {
      // Skips `begins`, which usually does not exist. If it does, the start of the child workflow fails and reports it.
      const loaded = await loadSession({ sessionId: this.#sessionId, ...(this.#begins && { begins: this.#begins }) });
      this.#state = loaded;
      this.#loaded = true;
    } catch (error) {
      this.#failure = toError(causeOf(error));
      await condition(allHandlersFinished);
      throw error;
    }
  }

  /** Waits until the session is loaded and its last turn has started. */
  async #untilReady(): Promise<void> {
    await condition(() => this.#loaded || this.#failure !== undefined);
    if (this.#failure) throw this.#failure;
    await this.#starting;
  }

  /** Prefers to continue between turns, but continues during one before the history grows too long. */
  #mayContinue(): boolean {
    const { continueAsNewSuggested, historyLength, historySize } = workflowInfo();
    const isLong = historyLength >= MAX_HISTORY_EVENTS || historySize >= MAX_HISTORY_BYTES;
    const { open, queue } = this.#state;
    const isBusy = open || queue.length > 0;
    if (!isLong && !(continueAsNewSuggested && !isBusy)) return false;
    return !this.#isStarting && !this.#watch.isStopping && allHandlersFinished();
  }

  createTurn(command: CreateTurnCommand): Promise<TurnCreation> {
    return this.#commands.run(async () => {
      await this.#untilReady();
      const repeated = this.#known(command.turnId);
      if (repeated) return repeated;
      if (this.#mayExistAlready(command)) {
        const known = await inspectTurn({ sessionId: this.#sessionId, turnId: command.turnId });
        if (known) return this.#adoptExisting(known);
      }
      // A client reads the end of a turn in its log, and may answer it before the session has been notified.
      const running = this.#state.tip;
      if (running && mustHaveEnded(command)) await this.#watch.reconcile(running.turnId);
      await this.#advance();
      if (isForQueue(command, this.#state)) return this.#enqueue(command);
      let previous = await this.#validate(command);
      const { open, tip } = this.#state;
      if (open && tip) {
        if (command.onRunning) throw refused(RUNNING);
        if (command.sparesRunning) throw refused(MAY_NOT_CANCEL);
        this.#watch.stop(tip.turnId, 'cancelled-for-next-turn');
        await condition(() => !this.#state.open);
        // The turn may have ended before it was cancelled, with pending calls.
        previous = await this.#validate(command);
      }
      return this.#start(command, previous);
    });
  }

  /** The result of a command that was carried out before, if its turn is the newest one, or waits in the queue. */
  #known(turnId: string): TurnCreation | undefined {
    const { tip, queue } = this.#state;
    if (tip?.turnId === turnId) return accepted(tip);
    const queued = queue.find((one) => one.turnId === turnId);
    return queued && enqueued(queued);
  }

  /**
   * Whether the turn may exist: its id is not newer than the newest one, so another may have followed, or the command is
   * too old to start it. Temporal repeats such commands to a run that results from an operator's reset.
   */
  #mayExistAlready(command: CreateTurnCommand): boolean {
    const { newest } = this.#state;
    return (newest !== null && command.turnId <= newest) || isExpired(command);
  }

  /** Rejects a command that can be rejected from the state alone. Such a command leaves no event in the history. */
  validateCreateTurn(command: CreateTurnCommand): void {
    const { previous, input } = command;
    const { tip, open, closed, queue } = this.#state;
    if (!this.#loaded || this.#mayExistAlready(command)) return;
    if (closed) throw refused(CLOSED);
    // It may have ended, with pending calls.
    if (open || queue.length > 0) return;
    const isTip = previous.turn === 'last' || (previous.turn === 'id' && previous.turnId === tip?.turnId);
    const refusal = isTip ? refuseInput(input, tip?.pending ?? []) : undefined;
    if (refusal) throw refused(refusal);
  }

  /** Returns the turn that the new one follows, with its pending calls. */
  async #validate(command: CreateTurnCommand): Promise<PreviousTurn | null> {
    if (this.#state.closed) throw refused(CLOSED);
    if (isExpired(command)) throw refused(EXPIRED);
    const previous = await this.#previous(command.previous);
    const refusal = refuseInput(command.input, previous?.pending ?? []);
    if (refusal) throw refused(refusal);
    return previous;
  }

  async #previous(previous: CreateTurnCommand['previous']): Promise<PreviousTurn | null> {
    const { tip } = this.#state;
    if (previous.turn === 'none') return null;
    if (previous.turn === 'last' || previous.turnId === tip?.turnId) return tip;
    const { turnId } = previous;
    const seen = await inspectTurn({ sessionId: this.#sessionId, turnId });
    if (!seen || seen.queued) throw refused({ code: 'turn_not_found', message: `the session has no turn ${turnId}` });
    return { turnId, ...waitingOf(seen) };
  }

  /**
   * Starts a turn. Does not wait until it has started: the acceptance of the command and the start are commands of the
   * same workflow task, so they are committed together.
   */
  #start(command: CreateTurnCommand, previous: PreviousTurn | null): TurnAccepted {
    const { previous: _, sparesRunning: __, onRunning: ___, ...rest } = command;
    const start: TurnStart = {
      ...rest,
      sessionId: this.#sessionId,
      sequence: (this.#state.tip?.sequence ?? 0) + 1,
      previousTurnId: previous?.turnId ?? null,
      resumes: previous?.pending ?? [],
      ...(previous?.threads && { threads: previous.threads }),
    };
    const { turnId, previousTurnId, sequence } = start;
    const undo = this.#makeTip({ turnId, previousTurnId, sequence });
    this.#run(() => this.#startChild(start, undo));
    return { turnId, previousTurnId, sequence };
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

  /** Until `start` has ended, no other command runs and the session does not continue as new. */
  #run(start: () => Promise<void>): void {
    this.#isStarting = true;
    this.#starting = start().finally(() => {
      this.#isStarting = false;
    });
  }

  /** Starts the workflow of a turn that waits, and is its log from now on. As `#start`, it does not wait for that. */
  #enqueue(command: CreateTurnCommand): TurnEnqueued {
    const { closed, queue } = this.#state;
    const refusal = closed ? CLOSED : isExpired(command) ? EXPIRED : refuseQueued(command, this.#state);
    if (refusal) throw refused(refusal);
    const { previous, sparesRunning: _, onRunning: __, ...rest } = command;
    const { turnId } = command;
    const number = (queue.at(-1)?.number ?? 0) + 1;
    const queued = { number, ...(previous.turn === 'none' && { isRoot: true as const }) };
    this.#state.queue = [...queue, { turnId, ...queued }];
    this.#state.newest = later(this.#state.newest, turnId);
    const start = { ...rest, sessionId: this.#sessionId, sequence: 0, previousTurnId: null, resumes: [], queued };
    this.#run(() => this.#startChild(start, () => this.#unqueue([turnId])));
    return { turnId, queued };
  }

  #unqueue(turnIds: string[]): void {
    this.#state.queue = this.#state.queue.filter(({ turnId }) => !turnIds.includes(turnId));
  }

  /** Begins the next turn of the queue, as a command of its own. */
  #advanceLater(): void {
    if (this.#state.queue.length === 0) return;
    runInBackground(() =>
      this.#commands.run(async () => {
        await this.#untilReady();
        await this.#advance();
      }),
    );
  }

  /** Begins the next turn of the queue if it may begin. A turn that has closed in the queue is passed over. */
  async #advance(): Promise<void> {
    for (let next = nextInQueue(this.#state); next; next = nextInQueue(this.#state)) {
      const { turnId, isRoot } = next;
      const { tip } = this.#state;
      const begin = { sequence: (tip?.sequence ?? 0) + 1, previousTurnId: isRoot ? null : (tip?.turnId ?? null) };
      this.#unqueue([turnId]);
      const undo = this.#makeTip({ turnId, ...begin });
      this.#run(() => this.#signalBegin(turnId, begin, undo));
      await this.#starting;
    }
  }

  async #signalBegin(turnId: string, begin: BeginTurn, undo: () => void): Promise<void> {
    try {
      const turn = getExternalWorkflowHandle(turnWorkflowId(turnId));
      await CancellationScope.nonCancellable(() => turn.signal(beginTurn, begin));
      this.#watch.running(turnId);
    } catch {
      undo();
    }
  }

  /** Never rejects. `undo` is called if the turn cannot be started. */
  async #startChild(start: TurnStart, undo: () => void): Promise<void> {
    const { turnId } = start;
    try {
      // A session that is being cancelled starts it nevertheless: the command is accepted.
      const child = await CancellationScope.nonCancellable(() =>
        startChild<typeof turn>('turn', {
          workflowId: turnWorkflowId(turnId),
          args: [{ ...start, rules: TURN_RULES }],
          parentClosePolicy: ParentClosePolicy.ABANDON,
          workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
          workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
        }),
      );
      this.#watch.child(turnId, child.result());
    } catch (error) {
      undo();
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) {
        log.error('a turn could not be started', { turnId, error: errorMessage(error) });
        return;
      }
      // The command is repeated, and a run of the session that this one does not know has executed it.
      const seen = await inspectTurn({ sessionId: this.#sessionId, turnId }).catch(() => undefined);
      if (seen) this.#adoptExisting(seen);
    }
  }

  /** Makes an existing turn the newest one, unless another has followed, or adds it to the queue. */
  #adoptExisting(turn: SeenTurn): TurnCreation {
    const { turnId, previousTurnId, sequence, open, queued, ...waiting } = turn;
    this.#state.newest = later(this.#state.newest, turnId);
    if (queued) {
      if (open) this.#state.queue = insertQueued(this.#state.queue, { turnId, ...queued });
      this.#advanceLater();
      return { turnId, queued };
    }
    if (sequence > (this.#state.tip?.sequence ?? 0)) {
      this.#state.tip = { turnId, previousTurnId, sequence, ...waitingOf(waiting) };
      this.#state.open = open;
      if (open) this.#watch.running(turnId);
    }
    return { turnId, previousTurnId, sequence };
  }

  cancel({ close, upTo, turnId: only }: CancelCommand): Promise<void> {
    return this.#commands.run(async () => {
      await this.#untilReady();
      if (close) this.#state.closed = true;
      const isMeant = (turnId: string) => (only === undefined ? turnId <= upTo : turnId === only);
      const { tip, open, queue } = this.#state;
      for (const { turnId } of queue) if (isMeant(turnId)) this.#stopQueued(turnId);
      if (open && tip && isMeant(tip.turnId)) this.#watch.stop(tip.turnId, 'client-cancelled');
    });
  }

  #stopQueued(turnId: string): void {
    this.#unqueue([turnId]);
    this.#watch.stopQueued(turnId, 'client-cancelled');
  }

  #ended(waiting: Waiting): void {
    this.#state.open = false;
    if (this.#state.tip) Object.assign(this.#state.tip, waitingOf(waiting));
    this.#advanceLater();
  }

  /** The newest turn has ended before it could begin: an operator has terminated it. The one before is the newest. */
  async #forget(turnId: string): Promise<void> {
    const { tip, open } = await reloadSession({ sessionId: this.#sessionId });
    if (!this.#runs(turnId)) return;
    Object.assign(this.#state, { tip, open });
    this.#advanceLater();
  }

  #runs(turnId: string): boolean {
    return this.#state.open && this.#state.tip?.turnId === turnId;
  }
}

type PreviousTurn = Pick<Tip, 'turnId'> & Waiting;

/** What waits on a turn, without its other fields. */
function waitingOf({ pending, threads }: Waiting): Waiting {
  return { pending, ...(threads && { threads }) };
}

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

/** Whether a command is rejected if the last turn runs, rather than cancelling it. */
function mustHaveEnded({ sparesRunning, onRunning, input }: CreateTurnCommand): boolean {
  return sparesRunning === true || onRunning !== undefined || input.some(({ type }) => type !== 'user.message');
}

function enqueued({ turnId, ...queued }: QueuedTurn): TurnEnqueued {
  return { turnId, queued };
}

function later(newest: string | null, turnId: string): string {
  return newest !== null && newest > turnId ? newest : turnId;
}

function isExpired({ createdAt }: CreateTurnCommand): boolean {
  return Date.now() - Date.parse(createdAt) > COMMAND_LIFETIME_MS;
}

function accepted({ turnId, previousTurnId, sequence }: TurnAccepted): TurnAccepted {
  return { turnId, previousTurnId, sequence };
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
