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
import type { Refusal } from '../src/core/input-rules.ts';
import type { CancelCommand, CreateTurnCommand, SeenTurn, SessionStart, TurnCreation } from '../src/core/session.ts';
import { SessionTurns, type CreationStep } from '../src/core/session-turns.ts';
import type { BeginTurn } from '../src/core/turn-queue.ts';
import { turnWorkflowId, WORKFLOW_TASK_TIMEOUT } from '../src/core/temporal-names.ts';
import { causeOf, errorMessage } from './errors.ts';
import { IdleTimer } from './idle-timer.ts';
import { beginTurn, cancelSession, createTurn } from './messages.ts';
import { Mutex } from './mutex.ts';
import type { turn } from './turn.ts';
import { inspectTurn, reading, runInBackground, TurnWatch } from './turn-watch.ts';

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

/**
 * A session, which owns the order of its turns. Every command that changes it is an Update of this workflow. They run
 * one at a time, so two turns never run at once, and answers are checked against the calls that are pending.
 *
 * The workflow of an idle session ends. Nothing is lost: the next command starts it again, and it loads its state as
 * after a failure. Otherwise each session would be an open workflow for ever, which every later version replays.
 */
export async function session(start: SessionStart): Promise<void> {
  const run = new SessionRun(start);
  setHandler(createTurn, (command) => asUpdateFailure(() => run.createTurn(command)), {
    validator: (command) => run.validateCreateTurn(command),
  });
  setHandler(cancelSession, (command) => asUpdateFailure(() => run.cancel(command)));
  try {
    await run.untilIdle();
  } catch (error) {
    if (error instanceof TemporalFailure || error instanceof ContinueAsNew) throw error;
    // Any other error would fail the workflow task for ever. The next command starts a failed session again.
    throw ApplicationFailure.nonRetryable(errorMessage(error), 'session_failed');
  }
}

class SessionRun {
  readonly #sessionId: string;
  readonly #begins: string | undefined;
  readonly #turns: SessionTurns;
  #loaded: boolean;
  /** Why the session cannot be loaded. */
  #failure: Error | undefined;
  /** Settles when the last turn has started or begun, or could not. */
  #starting: Promise<void> = Promise.resolve();
  #isStarting = false;
  readonly #commands = new Mutex();
  readonly #watch: TurnWatch;
  readonly #idle: IdleTimer;

  constructor({ sessionId, begins, state, idle }: SessionStart) {
    this.#sessionId = sessionId;
    this.#begins = begins;
    this.#loaded = state !== undefined;
    this.#turns = new SessionTurns(sessionId, state);
    this.#watch = new TurnWatch({
      sessionId,
      runs: (turnId) => this.#turns.runs(turnId),
      ended: (waiting) => {
        this.#idle.restart();
        this.#turns.ended(waiting);
        this.#advanceLater();
      },
      closed: (turnId) => this.#turns.unqueue(turnId),
      neverBegan: (turnId) => this.#forget(turnId),
    });
    this.#idle = new IdleTimer(idle, () => this.#turns.isAtRest && this.#isSettled);
  }

  /** Resolves when the session is idle. Continues as new before that, when its history grows long. */
  async untilIdle(): Promise<void> {
    if (!this.#loaded) await this.#load();
    const { running } = this.#turns;
    if (running !== undefined) this.#watch.running(running);
    this.#advanceLater();
    const isIdle = await Promise.race([
      condition(() => this.#turns.mayContinue(workflowInfo()) && this.#isSettled).then(() => false),
      this.#idle.untilOver().then(() => true),
    ]);
    if (isIdle) return;
    const { time } = this.#idle;
    await continueAsNew<typeof session>({
      sessionId: this.#sessionId,
      state: this.#turns.state,
      ...(time && { idle: time }),
    });
  }

  /**
   * If the session cannot be loaded (it was deleted, or the catalog is damaged), fails after all commands have failed.
   */
  async #load(): Promise<void> {
    try {
      // Skips `begins`, which usually does not exist. If it does, the start of the child workflow fails and reports it.
      const { idleSeconds, ...state } = await loadSession({
        sessionId: this.#sessionId,
        ...(this.#begins && { begins: this.#begins }),
      });
      this.#turns.load(state);
      if (idleSeconds !== undefined) this.#idle.begin(idleSeconds);
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

  /** No command is being carried out. */
  get #isSettled(): boolean {
    return !this.#isStarting && !this.#watch.isStopping && allHandlersFinished();
  }

  createTurn(command: CreateTurnCommand): Promise<TurnCreation> {
    return this.#commands.run(async () => {
      await this.#untilReady();
      this.#idle.restart();
      const repeated = this.#turns.known(command.turnId);
      if (repeated) return repeated;
      if (this.#turns.mayExistAlready(command, Date.now())) {
        const known = await this.#inspect(command.turnId);
        if (known) return this.#adopt(known);
      }
      const running = this.#turns.mustHaveEnded(command);
      if (running !== undefined) await this.#watch.reconcile(running);
      await this.#advance();
      for (;;) {
        const step = await this.#decide(command);
        if ('refusal' in step) throw refused(step.refusal);
        if ('start' in step) {
          // Not waited for: the acceptance of the command and the start are commands of the same workflow task, so they
          // are committed together.
          this.#run(() => this.#startChild(step.start, step.undo));
          return step.creation;
        }
        this.#watch.stop(step.stops, 'cancelled-for-next-turn');
        await condition(() => this.#turns.running === undefined);
      }
    });
  }

  async #decide(command: CreateTurnCommand): Promise<CreationStep> {
    const forked = await this.#forked(command);
    return this.#turns.create(command, forked, Date.now());
  }

  async #forked(command: CreateTurnCommand): Promise<SeenTurn | undefined> {
    const turnId = this.#turns.forkOf(command, Date.now());
    return turnId === undefined ? undefined : await this.#inspect(turnId);
  }

  #inspect(turnId: string): Promise<SeenTurn | undefined> {
    return inspectTurn({ sessionId: this.#sessionId, turnId });
  }

  /** Rejects a command that can be rejected from the state alone. Such a command leaves no event in the history. */
  validateCreateTurn(command: CreateTurnCommand): void {
    const refusal = this.#loaded ? this.#turns.refuseAtOnce(command, Date.now()) : undefined;
    if (refusal) throw refused(refusal);
  }

  /** Until `start` has ended, no other command runs and the session does not continue as new. */
  #run(start: () => Promise<void>): void {
    this.#isStarting = true;
    this.#starting = start().finally(() => {
      this.#isStarting = false;
    });
  }

  /** Begins the next turn of the queue, as a command of its own. */
  #advanceLater(): void {
    if (!this.#turns.isAnyQueued) return;
    runInBackground(() =>
      this.#commands.run(async () => {
        await this.#untilReady();
        await this.#advance();
      }),
    );
  }

  /** Begins the next turn of the queue if it may begin. A turn that has closed in the queue is skipped. */
  async #advance(): Promise<void> {
    for (let next = this.#turns.beginNext(); next; next = this.#turns.beginNext()) {
      const { turnId, begin, undo } = next;
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
      // The command is repeated: another run of the session, whose state this one does not have, has executed it.
      const seen = await this.#inspect(turnId).catch(() => undefined);
      if (seen) this.#adopt(seen);
    }
  }

  #adopt(turn: SeenTurn): TurnCreation {
    const creation = this.#turns.adopt(turn);
    if ('queued' in creation) this.#advanceLater();
    else if (this.#turns.runs(turn.turnId)) this.#watch.running(turn.turnId);
    return creation;
  }

  cancel(command: CancelCommand): Promise<void> {
    return this.#commands.run(async () => {
      await this.#untilReady();
      this.#idle.restart();
      const { queued, running } = this.#turns.cancel(command);
      for (const turnId of queued) this.#watch.stopQueued(turnId, 'client-cancelled');
      if (running !== undefined) this.#watch.stop(running, 'client-cancelled');
    });
  }

  /** The newest turn has ended before it could begin: an operator has terminated it. The one before is the newest. */
  async #forget(turnId: string): Promise<void> {
    if (this.#turns.forget(turnId, await reloadSession({ sessionId: this.#sessionId }))) this.#advanceLater();
  }
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** The failure with which an Update rejects a command. */
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
