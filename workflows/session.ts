import {
  ActivityFailure,
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
  proxySinks,
  setHandler,
  startChild,
  TemporalFailure,
  workflowInfo,
  WorkflowIdReusePolicy,
  allHandlersFinished,
  type Sinks,
} from '@temporalio/workflow';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import type { Activities } from '../activities/index.ts';
import type { TurnResult, TurnStart } from '../src/core/history.ts';
import type { CancelReason, Waiting } from '../src/core/records.ts';
import { refuseInput, type Refusal } from '../src/core/input-rules.ts';
import {
  COMMAND_LIFETIME_MS,
  type CancelCommand,
  type CreateTurnCommand,
  type SessionStart,
  type SessionState,
  type Tip,
  type TurnAccepted,
} from '../src/core/session.ts';
import { turnWorkflowId, WORKFLOW_TASK_TIMEOUT } from '../src/core/temporal-names.ts';
import { errorMessage } from './errors.ts';
import { cancelSession, cancelTurn, createTurn } from './messages.ts';
import { Mutex } from './mutex.ts';
import type { turn } from './turn.ts';

/**
 * Short reads of the catalog and of histories, retried while these are unavailable, since no command can be decided
 * without them.
 */
const reading = {
  startToCloseTimeout: '10 seconds',
  retry: { initialInterval: '200 milliseconds', maximumInterval: '5 seconds' },
} as const;

/**
 * A local activity, since all commands wait for it. Others must not be: while a local activity takes several workflow
 * tasks, further events arrive before its result, but in a replay after it, so the replay may take another path. If its
 * worker is lost, the workflow task is lost too, and Temporal retries that with a back-off.
 */
const { loadSession } = proxyLocalActivities<Pick<Activities, 'loadSession'>>(reading);

const { inspectTurn } = proxyActivities<Pick<Activities, 'inspectTurn'>>({ ...reading, heartbeatTimeout: '4 seconds' });

/**
 * Terminates a turn that does not end: two quick calls to Temporal, retried for ever, since the session waits for it.
 * Lost workers are not counted: the calls depend on no content that could stall a worker, and if one is lost, the next
 * attempt is made only after 30 seconds.
 */
const { terminateTurn } = proxyActivities<Pick<Activities, 'terminateTurn'>>({
  startToCloseTimeout: '30 seconds',
  retry: { maximumInterval: '10 seconds' },
});

/**
 * The worker's archiver. It costs no event and no workflow task, and may be lost with its worker: housekeeping archives
 * what it has missed.
 */
export interface ArchiveSinks extends Sinks {
  archive: { turnEnded(turnId: string): void };
}

const { archive } = proxySinks<ArchiveSinks>();

/** A cancelled turn that has not ended after this time is terminated: it hangs, or no worker is available. */
const CANCEL_GRACE = '10 seconds';
/** The additional time for a turn that runs a tool which must not be aborted. */
const TOOL_GRACE = '20 seconds';

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
  #state: SessionState = { tip: null, open: false, closed: false };
  #loaded: boolean;
  /** Why the session cannot be loaded. */
  #failure: Error | undefined;
  /** Settles when the last turn has started, or could not be started. */
  #starting: Promise<void> = Promise.resolve();
  #isStarting = false;
  readonly #stopping = new Set<string>();
  readonly #commands = new Mutex();

  constructor({ sessionId, begins, state }: SessionStart) {
    this.#sessionId = sessionId;
    this.#begins = begins;
    this.#loaded = state !== undefined;
    if (state) this.#state = state;
  }

  async untilContinued(): Promise<never> {
    if (!this.#loaded) await this.#load();
    const { tip, open } = this.#state;
    if (open && tip) runInBackground(() => this.#poll(tip.turnId));
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
      this.#failure = error instanceof ActivityFailure && error.cause ? error.cause : toError(error);
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
    if (!isLong && !(continueAsNewSuggested && !this.#state.open)) return false;
    return !this.#isStarting && this.#stopping.size === 0 && allHandlersFinished();
  }

  createTurn(command: CreateTurnCommand): Promise<TurnAccepted> {
    return this.#commands.run(async () => {
      await this.#untilReady();
      const { tip, open } = this.#state;
      if (tip?.turnId === command.turnId) return accepted(tip); // a repeated command
      if (this.#mayExistAlready(command)) {
        const known = await inspectTurn({ sessionId: this.#sessionId, turnId: command.turnId });
        if (known) return this.#adoptExisting(known);
      }
      // A client reads the end of a turn in its log, and may answer it before the session has been notified.
      if (open && tip && mustHaveEnded(command)) await this.#reconcile(tip.turnId);
      let previous = await this.#validate(command);
      if (this.#state.open && tip) {
        if (command.onRunning === 'reject') throw refused(RUNNING);
        if (command.sparesRunning) throw refused(MAY_NOT_CANCEL);
        this.#stop(tip.turnId, 'cancelled-for-next-turn');
        await condition(() => !this.#state.open);
        // The turn may have ended before it was cancelled, with pending calls.
        previous = await this.#validate(command);
      }
      return this.#start(command, previous);
    });
  }

  /**
   * Whether the turn may exist: its id is older than the newest one, so another may have followed, or the command is
   * too old to start it. Temporal repeats such commands to a run that results from an operator's reset.
   */
  #mayExistAlready(command: CreateTurnCommand): boolean {
    const { tip } = this.#state;
    return (tip !== null && command.turnId < tip.turnId) || isExpired(command);
  }

  /** Rejects a command that can be rejected from the state alone. Such a command leaves no event in the history. */
  validateCreateTurn(command: CreateTurnCommand): void {
    const { turnId, previous, input } = command;
    const { tip, open, closed } = this.#state;
    if (!this.#loaded || this.#mayExistAlready(command) || tip?.turnId === turnId) return;
    if (closed) throw refused(CLOSED);
    // It may have ended, with pending calls.
    if (open) return;
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
    if (!seen) throw refused({ code: 'turn_not_found', message: `the session has no turn ${turnId}` });
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
    const before = this.#state.tip;
    this.#state.tip = { turnId, previousTurnId, sequence, pending: [] };
    this.#state.open = true;
    this.#isStarting = true;
    this.#starting = this.#startChild(start, before).finally(() => {
      this.#isStarting = false;
    });
    return { turnId, previousTurnId, sequence };
  }

  /** Never rejects. Until it has ended, no other command runs and the session does not continue as new. */
  async #startChild(start: TurnStart, before: Tip | null): Promise<void> {
    const { turnId } = start;
    try {
      // A session that is being cancelled starts it nevertheless: the command is accepted.
      const child = await CancellationScope.nonCancellable(() =>
        startChild<typeof turn>('turn', {
          workflowId: turnWorkflowId(turnId),
          args: [start],
          parentClosePolicy: ParentClosePolicy.ABANDON,
          workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
          workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
        }),
      );
      runInBackground(() => this.#untilClosed(turnId, child.result()));
    } catch (error) {
      this.#state.tip = before;
      this.#state.open = false;
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) {
        log.error('a turn could not be started', { turnId, error: errorMessage(error) });
        return;
      }
      // The command is repeated, and a run of the session that this one does not know has executed it.
      const seen = await inspectTurn({ sessionId: this.#sessionId, turnId }).catch(() => undefined);
      if (seen) this.#adoptExisting(seen);
    }
  }

  /** Makes an existing turn the newest one, unless another has followed. */
  #adoptExisting({ turnId, previousTurnId, sequence, open, ...waiting }: Tip & { open: boolean }): TurnAccepted {
    if (sequence > (this.#state.tip?.sequence ?? 0)) {
      this.#state.tip = { turnId, previousTurnId, sequence, ...waitingOf(waiting) };
      this.#state.open = open;
      if (open) runInBackground(() => this.#poll(turnId));
    }
    return { turnId, previousTurnId, sequence };
  }

  cancel({ close, upTo }: CancelCommand): Promise<void> {
    return this.#commands.run(async () => {
      await this.#untilReady();
      if (close) this.#state.closed = true;
      const { tip, open } = this.#state;
      if (open && tip && tip.turnId <= upTo) this.#stop(tip.turnId, 'client-cancelled');
    });
  }

  #ended(turnId: string, waiting: Waiting): void {
    const { tip } = this.#state;
    if (!this.#runs(turnId) || !tip) return;
    this.#state.open = false;
    Object.assign(tip, waitingOf(waiting));
    archive.turnEnded(turnId);
  }

  /** Cancels a turn, and terminates it if it does not end. The first reason is kept. */
  #stop(turnId: string, reason: CancelReason): void {
    if (this.#stopping.has(turnId)) return;
    this.#stopping.add(turnId);
    runInBackground(async () => {
      try {
        await this.#untilStopped(turnId, reason);
      } finally {
        this.#stopping.delete(turnId);
      }
    });
  }

  async #untilStopped(turnId: string, reason: CancelReason): Promise<void> {
    try {
      await getExternalWorkflowHandle(turnWorkflowId(turnId)).signal(cancelTurn, reason);
    } catch {
      // It has closed, and its signal may have been lost.
      await this.#reconcile(turnId);
    }
    for (const sparesTools of [true, false]) {
      const grace = sparesTools ? CANCEL_GRACE : TOOL_GRACE;
      if (await condition(() => !this.#runs(turnId), grace)) return;
      if (await terminateTurn({ turnId, reason, sparesTools })) break;
    }
    await this.#reconcile(turnId);
  }

  /** Waits for a turn as its parent. */
  async #untilClosed(turnId: string, closed: Promise<TurnResult>): Promise<void> {
    let result: TurnResult;
    try {
      result = await closed;
    } catch {
      // It failed, or an operator has terminated or reset it.
      await this.#reconcile(turnId);
      await this.#poll(turnId);
      return;
    }
    this.#ended(turnId, result.status === 'done' ? result : NOTHING);
  }

  /** Polls a turn that this run did not start: only its parent run is notified when it closes. */
  async #poll(turnId: string): Promise<void> {
    while (!(await condition(() => !this.#runs(turnId), '1 minute'))) await this.#reconcile(turnId);
  }

  async #reconcile(turnId: string): Promise<void> {
    if (!this.#runs(turnId)) return;
    let seen: Awaited<ReturnType<typeof inspectTurn>>;
    try {
      seen = await inspectTurn({ sessionId: this.#sessionId, turnId });
    } catch (error) {
      log.warn('the turn of a session could not be inspected; it will be retried', {
        turnId,
        error: errorMessage(error),
      });
      return;
    }
    if (this.#runs(turnId) && !seen?.open) this.#ended(turnId, seen ?? NOTHING);
  }

  #runs(turnId: string): boolean {
    return this.#state.open && this.#state.tip?.turnId === turnId;
  }
}

type PreviousTurn = Pick<Tip, 'turnId'> & Waiting;

const NOTHING: Waiting = { pending: [] };

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

function isExpired({ createdAt }: CreateTurnCommand): boolean {
  return Date.now() - Date.parse(createdAt) > COMMAND_LIFETIME_MS;
}

function accepted({ turnId, previousTurnId, sequence }: TurnAccepted): TurnAccepted {
  return { turnId, previousTurnId, sequence };
}

function refused({ code, message }: Refusal): ApplicationFailure {
  return ApplicationFailure.nonRetryable(message, code);
}

/**
 * Turns any error into a failure of the Update. Errors that are not Temporal's would fail the workflow task instead.
 */
async function asUpdateFailure<T>(handler: () => Promise<T>): Promise<T> {
  try {
    return await handler();
  } catch (error) {
    if (error instanceof TemporalFailure) throw error;
    throw ApplicationFailure.nonRetryable(errorMessage(error), 'internal_error');
  }
}

/** Runs a task concurrently with the commands. Its errors must not fail the workflow task either. */
function runInBackground(task: () => Promise<void>): void {
  task().catch((error: unknown) =>
    log.error('a background task of the session failed', { error: errorMessage(error) }),
  );
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
