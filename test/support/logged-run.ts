import { callModelInput, callToolInput, resumeCellInput, threadInput } from '../../src/core/call-inputs.ts';
import { due, endOf, Slots, type RunState, type Work } from '../../src/core/due.ts';
import type { ScheduledActivity, TurnContinuation, TurnStart } from '../../src/core/history.ts';
import type { LogEntry } from '../../src/core/records/log.ts';
import type { Turn } from '../../src/core/turn.ts';
import { TurnLog } from '../../workflows/turn-log.ts';
import { AT } from './random-turn.ts';

/** A run of a turn with the log that its workflow keeps, without the workflow: a test ends what it begins. */
export class LoggedRun {
  readonly log: TurnLog;
  readonly #start: TurnStart;
  #run: RunState;
  /** The ids of the activities that run, by their names. */
  readonly #running = new Map<string, number>();
  /** How many messages the turn has planned: both ways of running it give them the same ids. */
  #messages: number;

  constructor(start: TurnStart, messages = 0) {
    this.#start = start;
    this.#messages = messages;
    this.log = new TurnLog(start);
    this.#run = {
      isStopping: false,
      isDraining: false,
      forced: new Set(),
      interrupted: new Set(),
      isTimeUp: false,
      slots: this.#newSlots(),
    };
  }

  /** The run that continues this one as new, with what Temporal stores of it. */
  again(): LoggedRun {
    const { resumes: _, ...constants } = this.#start;
    const carry = { ...this.log.open, previousRunId: 'r', deadline: 0 };
    const stored = JSON.parse(JSON.stringify(carry)) as TurnContinuation;
    return new LoggedRun({ ...constants, carry: stored }, this.#messages);
  }

  #newSlots(): Slots {
    return new Slots(this.#start.limits.subAgents);
  }

  /** No sub-agent has a slot, as at the beginning of a run. */
  forgetSlots(): void {
    this.set({ slots: this.#newSlots() });
  }

  set(run: Partial<RunState>): void {
    this.#run = { ...this.#run, ...run };
  }

  get end(): ReturnType<typeof endOf> {
    return endOf(this.log.state, this.#run);
  }

  /** The names of the activities that run. */
  get running(): string[] {
    return [...this.#running.keys()];
  }

  activity(name: string): ScheduledActivity {
    const activity = this.log.state.running().find((one) => nameOf(one) === name);
    if (!activity) throw new Error(`${name} does not run`);
    return activity;
  }

  /** Begins what is due. Returns it, without the start of the run. */
  begin(now: number): ScheduledActivity[] {
    return due(this.log.state, this.#run).flatMap((work) => {
      const activity = this.#activityOf(work, now);
      if (!activity) return [];
      const name = nameOf(activity);
      if (this.#running.has(name)) throw new Error(`${name} runs already`);
      this.#running.set(name, this.log.scheduled(activity));
      return activity;
    });
  }

  #activityOf(work: Work, now: number): ScheduledActivity | undefined {
    if (isTold(work)) return undefined;
    const { recent } = work.name === 'callModel' ? this.log.next(work.threadId) : { recent: [] };
    const newMessage = () => ({ messageId: `msg_${++this.#messages}`, createdAt: AT });
    const activity = activityOf(work, { start: this.#start, log: this.log.state }, { now, recent, newMessage });
    if (activity.name !== 'callModel') return activity;
    const { start: _, ...input } = activity.input;
    return { name: activity.name, input };
  }

  ends(name: string, end: Parameters<TurnLog['ended']>[1]): LogEntry[] {
    const id = this.#running.get(name);
    if (id === undefined) throw new Error(`${name} does not run`);
    this.#running.delete(name);
    // Runs that are compared share no objects.
    return this.log.ended(id, 'result' in end ? structuredClone(end) : end);
  }
}

type Told = Extract<Work, { name: 'forceDelegate' | 'interruptCell' | 'holdCell' | 'cancelCall' }>;

/** Whether work is a message to another component, which the log does not record. */
export function isTold(work: Work): work is Told {
  return ['forceDelegate', 'interruptCell', 'holdCell', 'cancelCall'].includes(work.name);
}

/** The activity that a turn begins, with its input. */
export function activityOf(
  work: Exclude<Work, Told>,
  { start, log }: { start: TurnStart; log: Turn },
  call: Omit<Parameters<typeof callModelInput>[1], 'threadId'>,
): ScheduledActivity {
  const { actions } = log;
  if (!actions) throw new Error('the turn has not started');
  const turn = { start, log, actions, guard: { runId: 'r', deadline: 0 } };
  if (work.name === 'callTool') return { name: work.name, input: callToolInput(turn, work.call, call.now) };
  const { name, threadId } = work;
  if (name === 'connectTools') return { name, input: threadInput(turn, threadId) };
  if (name === 'openSandbox') return { name, input: threadInput(turn, threadId) };
  if (name === 'resumeCell') return { name, input: resumeCellInput(turn, threadId, call.now) };
  return { name, input: callModelInput(turn, { threadId, ...call }) };
}

function nameOf({ name, input }: ScheduledActivity): string {
  return `${input.threadId} ${name === 'callTool' ? input.toolCallId : name}`;
}
