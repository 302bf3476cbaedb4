import { isCancellation, TimeoutFailure } from '@temporalio/workflow';
import type {
  ActivityResult,
  HostResult,
  NextModelCall,
  Open,
  ScheduledActivity,
  StampedResult,
  TurnContinuation,
  TurnStart,
} from '../src/core/history.ts';
import { runsInSandbox } from '../src/core/call.ts';
import { Turn } from '../src/core/turn.ts';
import type { LogEntry } from '../src/core/records/log.ts';
import { ROOT_THREAD } from '../src/core/records/threads.ts';
import type { TurnActions } from '../src/core/turn-actions.ts';
import type { CommandEvent } from '../src/core/turn-command.ts';
import { causeOf, errorMessage } from './errors.ts';

/** The limit of the results of hosts in an input, in characters of JSON: the history has a copy per thread's input. */
const MAX_HOST_RESULTS = 2048;

/** The result of an activity that adds to the log. */
export type StepResult = Omit<Extract<ActivityResult, { how: 'completed' }>, 'how'>;

/** The log of a turn in its workflow: the state that its readers have, fed with the events that they will read. */
export class TurnLog {
  readonly state = new Turn();
  readonly actions: TurnActions;
  /** How many activities this run has begun. */
  #activities = 0;
  /** The results of this run, and the last ones of the previous run. */
  readonly #results: StampedResult[];
  /** The activities that kernel hosts run. */
  readonly #ofHosts = new Set<number>();
  /** The results of these activities, if they are small, for the inputs of the threads' next model calls. */
  #hostResults: HostResult[] = [];

  constructor(start: TurnStart) {
    this.state.started(start);
    const { actions } = this.state;
    if (!actions) throw new Error('a run that has started has actions');
    this.actions = actions;
    this.#results = [...(start.carry?.results ?? [])];
  }

  /** An activity begins. Returns its id in the log. */
  scheduled(activity: ScheduledActivity): number {
    this.#activities += 1;
    if (isOfHost(activity)) this.#ofHosts.add(this.#activities);
    this.state.scheduled(this.#activities, activity);
    return this.#activities;
  }

  /** An activity has ended. Without a result, `error` is why. */
  ended(id: number, end: { result: StepResult } | { error: unknown }): LogEntry[] {
    const after = this.state.ordinal;
    const result: ActivityResult = 'result' in end ? { how: 'completed', ...end.result } : failureOf(end.error);
    const entries = this.state.ended(id, new Date().toISOString(), result);
    const { stamp, records } = result.how === 'completed' ? result : {};
    this.#noteRecords(after, stamp);
    if (this.#ofHosts.delete(id) && stamp && records) this.#noteHostResult({ stamp, records });
    return entries;
  }

  /** Ends a workflow task with the commands that have arrived. Returns what is added to the log. */
  taskEnded(now: number, commands: readonly CommandEvent[]): LogEntry[] {
    const after = this.state.ordinal;
    const { entries } = this.state.taskEnded(now, commands);
    this.#noteRecords(after);
    return entries;
  }

  /** No worker caches records that the log gets without a result: an empty stamp makes model calls read the history. */
  #noteRecords(after: number, stamp = ''): void {
    if (stamp !== '' || this.state.ordinal > after) this.#results.push({ stamp, after });
  }

  /** Keeps the last results whose total size is small. */
  #noteHostResult(result: HostResult): void {
    this.#hostResults.push(result);
    while (JSON.stringify(this.#hostResults).length > MAX_HOST_RESULTS) this.#hostResults.shift();
  }

  /** The results that the input of a thread's next model call lists. */
  next(threadId: string): NextModelCall {
    const recent = this.#since(this.state.thread(threadId).read).map(({ stamp }) => stamp);
    const ofHosts = this.#hostResults.filter(({ stamp }) => recent.includes(stamp));
    return { recent, ...(ofHosts.length > 0 && { ofHosts }) };
  }

  /** What the next run of the turn continues with. */
  get open(): Open & Pick<TurnContinuation, 'results'> {
    const { open } = this.state;
    if (!open) throw new Error('a run that has started has a state');
    // Its sub-agents have begun with the records that it has read, or later.
    return { ...open, results: this.#since(this.state.thread(ROOT_THREAD).read) };
  }

  /** The results that were added after the first `read` records. */
  #since(read: number): StampedResult[] {
    return this.#results.slice(this.#results.findLastIndex(({ after }) => after < read) + 1);
  }
}

/** Whether a kernel host runs an activity, whose result no worker has produced. */
function isOfHost({ name, input }: ScheduledActivity): boolean {
  return name === 'openSandbox' || name === 'resumeCell' || (name === 'callTool' && runsInSandbox(input));
}

/** How an activity without a result has ended. */
function failureOf(error: unknown): Exclude<ActivityResult, { how: 'completed' }> {
  // Only the history contains whether a cancelled activity had started; that decides nothing here.
  if (isCancellation(error)) return { how: 'cancelled', started: true };
  const cause = causeOf(error);
  if (!(cause instanceof TimeoutFailure)) return { how: 'failed', message: errorMessage(cause) };
  // If an earlier attempt failed, `cause.failure` has its failure as the cause; `cause.cause` does not.
  const isUnstarted = cause.timeoutType === 'SCHEDULE_TO_START' && !cause.failure?.cause;
  return { how: 'timed_out', ...(isUnstarted && { isUnstarted }) };
}
