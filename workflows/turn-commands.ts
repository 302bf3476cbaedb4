import { CancellationScope, condition, proxySinks, setHandler, sleep, type Sinks } from '@temporalio/workflow';
import type { TurnStart } from '../src/core/history.ts';
import type { TurnEvent } from '../src/core/turn-command.ts';
import { indexActions } from './index-activities.ts';
import { commandTurn } from './messages.ts';
import type { TurnScope } from './turn-scope.ts';

/** Sinks of the worker; calls to them are not part of the history. */
export interface CommandSinks extends Sinks {
  /** The turn is paused, or resumed. */
  pauses: { changed(turnId: string, isPaused: boolean, at: string): void };
  speculation: {
    /** A command has changed what comes next in the turn, which may be held: its threads begin nothing then. */
    changed(turnId: string): void;
    /** The turn, which is not held, calls the model for this message. */
    modelCalled(messageId: string): void;
  };
}

const { pauses, speculation } = proxySinks<CommandSinks>();

interface TurnCommandsOptions {
  start: Pick<TurnStart, 'turnId' | 'sessionId'>;
  scope: TurnScope;
  /** The end of a task has added records to the log. */
  onGrowth: () => void;
}

/**
 * Ends the workflow tasks of a turn: after the results of the task's activities come the commands that arrived with it.
 *
 * The SDK runs the handlers of an activation's signals before it resolves its activities, so a handler only queues, and
 * the queue is handled when all that follows from the results is done.
 */
export class TurnCommands {
  readonly #options: TurnCommandsOptions;
  #queue: TurnEvent[] = [];
  #isIndexDue = false;
  #alarm: { at: number; scope: CancellationScope } | undefined;

  constructor(options: TurnCommandsOptions) {
    this.#options = options;
    setHandler(commandTurn, (command) => {
      this.#queue.push(command);
    });
    // What is due may have waited in the run before.
    this.#setAlarm();
    // A turn that is being cancelled still records the commands that arrive.
    void CancellationScope.nonCancellable(() => this.#run());
  }

  /** Whether the end of the current task records commands. */
  get areDue(): boolean {
    return this.#queue.length > 0 || this.#options.scope.actions.mustRecord(Date.now());
  }

  /** The turn is cancelled: it accepts no commands that arrive later. */
  cancelled(): void {
    this.#queue.push({ type: 'cancelled' });
  }

  /** Waits until all commands that have arrived are recorded. A turn ends or continues as new only after this. */
  settled(): Promise<void> {
    return CancellationScope.nonCancellable(() => condition(() => !this.#isDue));
  }

  /** The inbox is brought up to the end of the current task: an activity's result has a request for a person. */
  index(): void {
    this.#isIndexDue = true;
  }

  get #isDue(): boolean {
    return this.#queue.length > 0 || this.#isIndexDue || this.#options.scope.actions.isUnsettled(Date.now());
  }

  async #run(): Promise<never> {
    for (;;) {
      await condition(() => this.#isDue);
      await microtasksDone();
      this.#endTask();
    }
  }

  #endTask(): void {
    const { scope, start, onGrowth } = this.#options;
    const { actions } = scope;
    const { turnId, sessionId } = start;
    const [wasPaused, wasHeld, now] = [actions.isPaused, actions.isHeld, Date.now()];
    const entries = scope.taskEnded(now, this.#queue);
    if (entries.length > 0) onGrowth();
    if (actions.isHeld !== wasHeld || this.#queue.some(({ type }) => type !== 'answer')) {
      speculation.changed(turnId);
    }
    this.#queue = [];
    // The inbox and webhooks are told what waits, what was decided, and whether the turn is paused.
    const isNews = this.#isIndexDue || entries.some(({ record }) => record.kind !== 'user.steered');
    this.#isIndexDue = false;
    if (isNews) indexActions({ turnId, sessionId, through: scope.ordinal }).catch(() => undefined);
    if (actions.isPaused !== wasPaused) pauses.changed(turnId, actions.isPaused, new Date(now).toISOString());
    this.#setAlarm();
  }

  /** Starts a timer for the next time at which something expires: without it no task would end then. */
  #setAlarm(): void {
    const at = this.#options.scope.actions.nextDue;
    if (at === this.#alarm?.at) return;
    this.#alarm?.scope.cancel();
    this.#alarm = undefined;
    if (at === undefined) return;
    const scope = new CancellationScope({ cancellable: true });
    this.#alarm = { at, scope };
    scope
      .run(() => sleep(Math.max(1, at - Date.now())))
      .then(() => {
        // The clocks of Temporal's hosts differ, so it may have fired early.
        this.#alarm = undefined;
        this.#setAlarm();
      })
      .catch(() => undefined);
  }
}

/**
 * Resolves at the end of the current workflow task. The SDK evaluates a condition when it is created, after each job of an
 * activation, and after the last job whenever no microtask is left. One that is created in a microtask meets no job, so
 * its second evaluation is the one at the end.
 */
async function microtasksDone(): Promise<void> {
  let evaluations = 0;
  await condition(() => evaluations++ > 0);
}
