import {
  ActivityFailure,
  ApplicationFailure,
  condition,
  ContinueAsNew,
  continueAsNew,
  getExternalWorkflowHandle,
  log,
  ParentClosePolicy,
  proxyActivities,
  proxyLocalActivities,
  setHandler,
  sleep,
  startChild,
  TemporalFailure,
  workflowInfo,
  WorkflowIdReusePolicy,
  allHandlersFinished,
  type ChildWorkflowHandle,
} from '@temporalio/workflow';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import type { Activities } from '../activities/index.ts';
import type { TurnStart } from '../src/core/history.ts';
import type { CancelReason, PendingCall } from '../src/core/records.ts';
import { refuseInput, type Refusal } from '../src/core/input-rules.ts';
import {
  COMMAND_LIFETIME_MS,
  type CancelCommand,
  type CreateTurnCommand,
  type SessionStart,
  type SessionState,
  type Tip,
  type TurnAccepted,
  type TurnEnding,
} from '../src/core/session.ts';
import { turnWorkflowId, WORKFLOW_TASK_TIMEOUT } from '../src/core/temporal-names.ts';
import { cancelSession, cancelTurn, createTurn, turnEnding } from './messages.ts';
import { Mutex } from './mutex.ts';
import type { turn } from './turn.ts';

/**
 * Short reads of our own stores: retried while these are away, because nothing can be decided without them. Local ones
 * have no heartbeats that count lost workers: one that is lost takes its workflow task with it, which Temporal repeats
 * less and less often.
 */
const { loadSession, inspectTurn } = proxyLocalActivities<Pick<Activities, 'loadSession' | 'inspectTurn'>>({
  startToCloseTimeout: '10 seconds',
  retry: { initialInterval: '200 milliseconds', maximumInterval: '5 seconds' },
});

/** Ends a turn that does not end by itself: two quick calls to Temporal, retried for ever, or the session would wait. */
const { terminateTurn } = proxyActivities<Pick<Activities, 'terminateTurn'>>({
  startToCloseTimeout: '30 seconds',
  retry: { maximumInterval: '10 seconds' },
});

/** Long turns have long logs; a catalog that is away or full is waited for, for ever. Lost workers are counted. */
const { archiveTurn } = proxyActivities<Pick<Activities, 'archiveTurn'>>({
  startToCloseTimeout: '10 minutes',
  heartbeatTimeout: '30 seconds',
  retry: { maximumInterval: '1 minute' },
});

/** A cancelled turn that has not ended by then is terminated: it hangs, or there is no worker to end it. */
const CANCEL_GRACE = '10 seconds';
/** ... unless it runs a tool that must not be cut off; then this much longer. */
const TOOL_GRACE = '20 seconds';

/** Past this a session continues as new even though a turn is open. */
const MAX_HISTORY_EVENTS = 10_000;
const MAX_HISTORY_BYTES = 20 * 1024 * 1024;

/** Nobody waits for the archive: turns that end shortly after one another go there together. */
const ARCHIVE_DELAY = '1 second';

/**
 * A session: owns the order of its turns. Every command that changes it is an Update or a signal here, and they are
 * carried out one at a time, so two turns never run at once and answers are checked against what really waits.
 */
export async function session(start: SessionStart): Promise<void> {
  const run = new SessionRun(start);
  // First, so that an end which has come before a command is heard before it.
  setHandler(turnEnding, (ending) => run.turnEnding(ending));
  setHandler(createTurn, (command) => asUpdateFailure(() => run.createTurn(command)), {
    validator: (command) => run.validateCreateTurn(command),
  });
  setHandler(cancelSession, (command) => asUpdateFailure(() => run.cancel(command)));
  try {
    await run.untilContinued();
  } catch (error) {
    if (error instanceof TemporalFailure || error instanceof ContinueAsNew) throw error;
    // Anything else would fail the workflow task for ever. A failed session is built anew by its next command.
    throw ApplicationFailure.nonRetryable(messageOf(error), 'session_failed');
  }
}

class SessionRun {
  readonly #sessionId: string;
  readonly #begins: string | undefined;
  #state: SessionState = { tip: null, open: false, closed: false, unarchived: [] };
  #loaded: boolean;
  /** Why the session can't be loaded. */
  #failure: Error | undefined;
  readonly #archiving = new Set<string>();
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
    runInBackground(() => this.#archiveEnded());
    if (open && tip) runInBackground(() => this.#poll(tip.turnId));
    await condition(() => this.#mayContinue());
    return await continueAsNew<typeof session>({ sessionId: this.#sessionId, state: this.#state });
  }

  /** A session that can't be loaded, since it was deleted or its catalog is damaged, ends when all commands have heard so. */
  async #load(): Promise<void> {
    try {
      // If the turn is there all the same, the start of its child says so.
      const loaded = await loadSession({ sessionId: this.#sessionId, ...(this.#begins && { begins: this.#begins }) });
      this.#state = { ...loaded, unarchived: [] };
      this.#loaded = true;
    } catch (error) {
      this.#failure = error instanceof ActivityFailure && error.cause ? error.cause : toError(error);
      await condition(allHandlersFinished);
      throw error;
    }
  }

  async #untilLoaded(): Promise<void> {
    await condition(() => this.#loaded || this.#failure !== undefined);
    if (this.#failure) throw this.#failure;
  }

  /** Rather between turns than during one, but before the history grows too long in any case. */
  #mayContinue(): boolean {
    const { continueAsNewSuggested, historyLength, historySize } = workflowInfo();
    const isLong = historyLength >= MAX_HISTORY_EVENTS || historySize >= MAX_HISTORY_BYTES;
    const idle = !this.#state.open && this.#state.unarchived.length === 0;
    if (!isLong && !(continueAsNewSuggested && idle)) return false;
    return this.#stopping.size === 0 && allHandlersFinished();
  }

  createTurn(command: CreateTurnCommand): Promise<TurnAccepted> {
    return this.#commands.run(async () => {
      await this.#untilLoaded();
      const { tip } = this.#state;
      if (tip?.turnId === command.turnId) return accepted(tip); // the command came twice
      if (this.#mayExistAlready(command)) {
        const known = await inspectTurn({ sessionId: this.#sessionId, turnId: command.turnId });
        if (known) return this.#adoptExisting(known);
      }
      let previous = await this.#validate(command);
      if (this.#state.open && tip) {
        if (command.sparesRunning) throw refused(RUNNING);
        this.#stop(tip.turnId, 'cancelled-for-next-turn');
        await condition(() => !this.#state.open);
        // The turn may have ended by itself just before, and wait for a human now.
        previous = await this.#validate(command);
      }
      return this.#start(command, previous);
    });
  }

  /**
   * Whether the turn may be there: its id is older than the newest one, so another may have followed, or the command is
   * too old to begin it. Such are the commands that Temporal gives once more to a run that came of an operator's reset.
   */
  #mayExistAlready(command: CreateTurnCommand): boolean {
    const { tip } = this.#state;
    return (tip !== null && command.turnId < tip.turnId) || isExpired(command);
  }

  /** Refuses what can be refused without asking anybody: such a command leaves nothing in the history. */
  validateCreateTurn(command: CreateTurnCommand): void {
    const { turnId, previous, input } = command;
    const { tip, open, closed } = this.#state;
    if (!this.#loaded || this.#mayExistAlready(command) || tip?.turnId === turnId) return;
    if (closed) throw refused(CLOSED);
    // The end of an open turn, and what waits on it, may have come in the same moment and not be noted yet.
    if (open) return;
    const isTip = previous.turn === 'last' || (previous.turn === 'id' && previous.turnId === tip?.turnId);
    const refusal = isTip ? refuseInput(input, tip?.pending ?? []) : undefined;
    if (refusal) throw refused(refusal);
  }

  /** Returns the turn that the new one follows, with what waits on it. */
  async #validate(command: CreateTurnCommand): Promise<Pick<Tip, 'turnId' | 'pending'> | null> {
    if (this.#state.closed) throw refused(CLOSED);
    if (isExpired(command)) throw refused(EXPIRED);
    const previous = await this.#previous(command.previous);
    const refusal = refuseInput(command.input, previous?.pending ?? []);
    if (refusal) throw refused(refusal);
    return previous;
  }

  async #previous(previous: CreateTurnCommand['previous']): Promise<Pick<Tip, 'turnId' | 'pending'> | null> {
    const { tip } = this.#state;
    if (previous.turn === 'none') return null;
    if (previous.turn === 'last' || previous.turnId === tip?.turnId) return tip;
    const { turnId } = previous;
    const seen = await inspectTurn({ sessionId: this.#sessionId, turnId });
    if (!seen) throw refused({ code: 'turn_not_found', message: `the session has no turn ${turnId}` });
    return { turnId, pending: seen.pending };
  }

  async #start(command: CreateTurnCommand, previous: Pick<Tip, 'turnId' | 'pending'> | null): Promise<TurnAccepted> {
    const { previous: _, sparesRunning: __, ...rest } = command;
    const start: TurnStart = {
      ...rest,
      sessionId: this.#sessionId,
      sequence: (this.#state.tip?.sequence ?? 0) + 1,
      previousTurnId: previous?.turnId ?? null,
      resumes: previous?.pending ?? [],
    };
    const { turnId, previousTurnId, sequence } = start;
    const before = this.#state.tip;
    // Before the start: a turn that is over at once may announce its end in the same moment.
    this.#state.tip = { turnId, previousTurnId, sequence, pending: [] };
    this.#state.open = true;
    try {
      // Awaited: a start that is still on its way when the session continues as new would be acknowledged and lost.
      const child = await startChild<typeof turn>('turn', {
        workflowId: turnWorkflowId(turnId),
        args: [start],
        parentClosePolicy: ParentClosePolicy.ABANDON,
        workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
        workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
      });
      runInBackground(() => this.#untilClosed(turnId, child));
      return { turnId, previousTurnId, sequence };
    } catch (error) {
      this.#state.tip = before;
      this.#state.open = false;
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      // The command came again, after a run of the session that this one knows nothing of.
      const seen = await inspectTurn({ sessionId: this.#sessionId, turnId });
      if (!seen) throw refused({ code: 'turn_not_found', message: `the session has no turn ${turnId}` });
      return this.#adoptExisting(seen);
    }
  }

  /** Makes a turn that is there already the newest one, unless another has followed. */
  #adoptExisting({ turnId, previousTurnId, sequence, pending, open }: Tip & { open: boolean }): TurnAccepted {
    if (sequence > (this.#state.tip?.sequence ?? 0)) {
      this.#state.tip = { turnId, previousTurnId, sequence, pending };
      this.#state.open = open;
      if (open) runInBackground(() => this.#poll(turnId));
    }
    return { turnId, previousTurnId, sequence };
  }

  cancel({ close, upTo }: CancelCommand): Promise<void> {
    return this.#commands.run(async () => {
      await this.#untilLoaded();
      if (close) this.#state.closed = true;
      const { tip, open } = this.#state;
      if (open && tip && tip.turnId <= upTo) this.#stop(tip.turnId, 'client-cancelled');
    });
  }

  async turnEnding({ turnId, pending }: TurnEnding): Promise<void> {
    await condition(() => this.#loaded || this.#failure !== undefined);
    if (this.#loaded) this.#ended(turnId, pending);
  }

  #ended(turnId: string, pending: PendingCall[]): void {
    const { tip, unarchived } = this.#state;
    // Once: a run that came of an operator's reset announces an end of its own.
    if (this.#runs(turnId) && tip) {
      this.#state.open = false;
      tip.pending = pending;
    }
    if (!unarchived.includes(turnId)) unarchived.push(turnId);
  }

  /** Asks a turn to end; sees to it that it does. The first reason stands. */
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
      // It has closed already, and nobody may be on the way to tell us.
      await this.#reconcile(turnId);
    }
    for (const sparesTools of [true, false]) {
      const grace = sparesTools ? CANCEL_GRACE : TOOL_GRACE;
      if (await condition(() => !this.#runs(turnId), grace)) return;
      if (await terminateTurn({ turnId, reason, sparesTools })) break;
    }
    await this.#reconcile(turnId);
  }

  /** A turn that was terminated or failed has not announced its end; as its parent we are told of it all the same. */
  async #untilClosed(turnId: string, child: ChildWorkflowHandle<typeof turn>): Promise<void> {
    await child.result().catch(() => undefined);
    await this.#reconcile(turnId);
    await this.#poll(turnId);
  }

  /** A run that did not start the turn itself is not told of its end, so it looks from time to time. */
  async #poll(turnId: string): Promise<void> {
    while (!(await condition(() => !this.#runs(turnId), '1 minute'))) await this.#reconcile(turnId);
  }

  async #reconcile(turnId: string): Promise<void> {
    if (!this.#runs(turnId)) return;
    let seen: Awaited<ReturnType<typeof inspectTurn>>;
    try {
      seen = await inspectTurn({ sessionId: this.#sessionId, turnId });
    } catch (error) {
      log.warn('the turn of a session could not be inspected; it is tried again', { turnId, error: messageOf(error) });
      return;
    }
    if (this.#runs(turnId) && !seen?.open) this.#ended(turnId, seen?.pending ?? []);
  }

  #runs(turnId: string): boolean {
    return this.#state.open && this.#state.tip?.turnId === turnId;
  }

  async #archiveEnded(): Promise<void> {
    const waiting = () => this.#state.unarchived.filter((turnId) => !this.#archiving.has(turnId));
    for (;;) {
      await condition(() => waiting().length > 0);
      await sleep(ARCHIVE_DELAY);
      for (const turnId of waiting()) runInBackground(() => this.#archive(turnId));
    }
  }

  async #archive(turnId: string): Promise<void> {
    this.#archiving.add(turnId);
    try {
      await archiveTurn({ turnId, sessionId: this.#sessionId });
    } catch (error) {
      // Housekeeping looks for closed turns that are not in the archive, and tries again every few minutes.
      log.error('a turn could not be archived', { turnId, error: messageOf(error) });
    }
    this.#archiving.delete(turnId);
    this.#state.unarchived = this.#state.unarchived.filter((id) => id !== turnId);
  }
}

const CLOSED: Refusal = { code: 'session_closed', message: 'the session is closed' };
const RUNNING: Refusal = {
  code: 'forbidden',
  message: 'this would cancel the turn that runs, which your role does not allow: send it again when that has ended',
};
const EXPIRED: Refusal = { code: 'request_expired', message: 'the request was under way for too long: send it again' };

function isExpired({ createdAt }: CreateTurnCommand): boolean {
  return Date.now() - Date.parse(createdAt) > COMMAND_LIFETIME_MS;
}

function accepted({ turnId, previousTurnId, sequence }: TurnAccepted): TurnAccepted {
  return { turnId, previousTurnId, sequence };
}

function refused({ code, message }: Refusal): ApplicationFailure {
  return ApplicationFailure.nonRetryable(message, code);
}

/** An error that is not Temporal's would fail the workflow task, and with it the session; the caller is to get it. */
async function asUpdateFailure<T>(handler: () => Promise<T>): Promise<T> {
  try {
    return await handler();
  } catch (error) {
    if (error instanceof TemporalFailure) throw error;
    throw ApplicationFailure.nonRetryable(messageOf(error), 'internal_error');
  }
}

/** Runs something beside the commands. What fails there must not fail the workflow task either. */
function runInBackground(task: () => Promise<void>): void {
  task().catch((error: unknown) => log.error('a background task of the session failed', { error: messageOf(error) }));
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
