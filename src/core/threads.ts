import { isAsked, pendingLeft, resumedCall, type Call } from './call.ts';
import type { ActivityResult, ScheduledInput, TurnStart } from './history.ts';
import { violatesSchema, type ModelMessage, type PlannedMessage } from './records/message.ts';
import type { PendingCall, Waiting } from './records/pending.ts';
import { ROOT_THREAD, type OpenThread, type SubAgent } from './records/threads.ts';
import type { TurnError } from './records/turn.ts';
import { ruleFor } from './remembered-decisions.ts';
import { hasBeenAsked, openCallsOf } from './tool-records.ts';
import { waitingOf } from './turn-result.ts';

/** How a thread has ended with its last model call. A sub-agent that is done has ended in the log, and has no state. */
export type ThreadEnd =
  | { status: 'done' }
  /** Its servers require sign-ins, in a turn that ends then. */
  | { status: 'waiting' }
  /** Its model call was cancelled. */
  | { status: 'stopped' }
  | TurnError;

/** A thread of a turn: the part of its past that decides what it does next, and its calls. */
export interface Thread {
  /** Its model calls, and the message that its client has given. */
  steps: number;
  /** How many of the steps have found that a sign-in is missing. They do not count against its limit. */
  refused: number;
  /** The first step was the message with which the client's conversation ends: no model was called. */
  isGiven: boolean;
  /** How many records the log had when it last called its model. */
  read: number;
  /** The message for which the model was not called: the conversation was compacted, or a budget was reached. */
  planned?: PlannedMessage | undefined;
  /** It has begun to connect to its servers. */
  isConnected: boolean;
  /** How long the turn had waited for people when the last message came, in milliseconds. */
  waitedMs: number;
  end?: ThreadEnd | undefined;
  /** A person has denied a call of it, or of its code. */
  isDenied: boolean;
  /** Undefined for the root agent. */
  agent?: SubAgent | undefined;
  /** The calls of its last message, by their ids and in their order. */
  calls: Map<string, Call>;
}

/** The threads of a turn that are not done: the root agent first, parents before their sub-agents. */
export type Threads = Map<string, Thread>;

/** A thread as the next run of its turn continues it. Absent fields are as at the beginning of a thread. */
export interface CarriedThread extends Partial<Omit<Thread, 'steps' | 'calls'>> {
  steps: number;
  calls?: Call[];
}

interface MadeCallsOptions {
  turnId: string;
  /** The stamp of the result with the message. */
  stamp: string;
  /** Whether the turn waits for people. */
  waits: boolean;
}

/** A sub-agent, or code, begins with a call of its parent. */
export function addThread(threads: Threads, agent: SubAgent): void {
  const { read = 0, calls } = threads.get(agent.parent.threadId) ?? {};
  threads.set(agent.threadId, newThread({ read, agent }));
  const call = calls?.get(agent.parent.toolCallId);
  if (call) call.state = 'delegated';
}

/** The calls that a message has just made, without those whose results follow it directly. */
export function madeCalls(message: ModelMessage, { waits, ...source }: MadeCallsOptions): Call[] {
  const { threadId, toolCalls } = message;
  const open = new Map(openCallsOf(message, source).map((call) => [call.source.index, call]));
  return toolCalls.flatMap(({ id: toolCallId, route, info }, index): Call[] => {
    if (route.to === 'thread') return [{ threadId, toolCallId, state: 'delegated', votes: [] }];
    const call = open.get(index);
    if (!call) return [];
    const rule = waits ? ruleFor({ info }, call) : undefined;
    const isBegun = call.source.run?.hasBegun;
    const known = { ...(isBegun && { hasBegun: true as const }), ...(rule !== undefined && { rule }) };
    return [{ state: call.needs ? 'new' : 'ready', ...call, ...known, votes: [] }];
  });
}

/** A thread that begins, or that a run or a turn continues. */
export function newThread({ calls = [], ...thread }: Partial<CarriedThread> = {}): Thread {
  return {
    steps: 0,
    refused: 0,
    isGiven: false,
    read: 0,
    isConnected: false,
    waitedMs: 0,
    isDenied: false,
    ...thread,
    // Copies, since several readers may have the same start.
    calls: new Map(calls.map((call) => [call.toolCallId, { ...call }])),
  };
}

/** The threads at the beginning of a run. */
export function threadsOf(start: Pick<TurnStart, 'carry' | 'resumes' | 'input' | 'createdAt'>): Threads {
  const { carry, resumes } = start;
  const { pending = [], threads = [] } = resumes ?? {};
  const root: CarriedThread = { steps: 0 };
  const continued = carry?.threads ?? [root, ...threads.map(resumedThread)];
  const all: Threads = new Map(continued.map((thread) => [thread.agent?.threadId ?? ROOT_THREAD, newThread(thread)]));
  if (carry) return all;
  const add = (call: Call): void => void all.get(call.threadId)?.calls.set(call.toolCallId, call);
  for (const { parent, code } of threads) add({ ...parent, ...code, state: 'delegated', votes: [] });
  for (const call of pending) {
    const resumed = resumedCall(call, start);
    if (resumed) add(resumed);
  }
  return all;
}

/** A sub-agent that was left open, as a run continues it. */
export function resumedThread({ steps, refused = 0, isDenied, ...agent }: OpenThread): CarriedThread {
  return { agent, steps, refused, ...(isDenied && { isDenied }) };
}

/** The threads that the next Temporal run of the turn continues. A run continues as new when no call runs. */
export function carriedThreads(threads: Threads, waits: boolean): CarriedThread[] {
  return [...threads.values()].map(
    ({ steps, refused, isGiven, read, planned, isConnected, waitedMs, end, isDenied, agent, calls: all }) => {
      // In a turn that waits, the answer to a call that was asked about may be repeated. A message may have 500 others.
      const calls = [...all.values()].filter((call) => call.state !== 'settled' || (waits && isAsked(call)));
      return {
        ...(agent && { agent }),
        steps,
        ...(refused > 0 && { refused }),
        ...(isGiven && { isGiven }),
        ...(read > 0 && { read }),
        ...(planned && { planned }),
        ...(isConnected && { isConnected }),
        ...(agent?.code && waitedMs > 0 && { waitedMs }),
        ...(end && { end }),
        ...(isDenied && { isDenied }),
        ...(calls.length > 0 && { calls }),
      };
    },
  );
}

/**
 * What a turn leaves to the next one: calls that wait, and those behind them, with their sub-agents. Threads are in the
 * order in which they began.
 */
export function waitingIn(threads: Threads): Waiting {
  const subAgents = [...threads.values()].flatMap(({ agent, steps, refused, isDenied }): OpenThread[] => {
    return agent ? [{ ...agent, steps, ...(refused > 0 && { refused }), ...(isDenied && { isDenied }) }] : [];
  });
  const pending = [...threads.values()].flatMap(({ calls }) => {
    const left = [...calls.values()].flatMap((call) => pendingLeft(call) ?? []);
    return left.toSorted((a, b) => rank(a) - rank(b));
  });
  return waitingOf({ pending, threads: subAgents });
}

/** Questions to people come first: those of the message, then those that its calls have raised. */
function rank(pending: PendingCall): number {
  if (pending.needs === 'order') return 3;
  if (pending.needs === 'sign_in') return 2;
  return hasBeenAsked(pending) ? 1 : 0;
}

/** The steps that count against the thread's limit. */
export function countedSteps({ steps, refused, isGiven }: Thread): number {
  return steps - refused - (isGiven ? 1 : 0);
}

/** Whether the request of the turn allows no further model call of the root agent. */
export function hasMadeAllRounds(root: Thread, { rounds = Infinity }: TurnStart['limits']): boolean {
  return countedSteps(root) >= rounds;
}

/** The thread calls its model. */
export function modelCalled(thread: Thread, { step, upTo }: ScheduledInput<'callModel'>): void {
  Object.assign(thread, { steps: step, read: upTo, planned: undefined, end: undefined });
}

/** A model call of the thread has ended. `waits`: the turn waits for sign-ins. */
export function modelEnded(
  thread: Thread,
  input: ScheduledInput<'callModel'>,
  end: ActivityResult,
  waits: boolean,
): void {
  thread.end = endAfter(input, end, waits);
  if (end.how !== 'completed') return;
  const { status } = end.outcome ?? {};
  if (status === 'compacted' || status === 'budget_reached') {
    thread.steps -= 1;
    const { messageId, createdAt } = input;
    thread.planned = { messageId, createdAt };
  }
  if (status === 'sign_in_required') thread.refused += 1;
  for (const record of end.records) if (record.kind === 'model.message') thread.isGiven ||= record.isGiven === true;
}

const LENGTH_REACHED = 'The model stopped at its limit of output tokens (finish_reason: length).';

/** How a thread has ended with a model call; undefined if its model is called again, at once or after its calls. */
function endAfter(input: ScheduledInput<'callModel'>, end: ActivityResult, waits: boolean): ThreadEnd | undefined {
  if (end.how === 'cancelled') return { status: 'stopped' };
  if (end.how === 'timed_out') return { status: 'error', message: 'A model call was lost.' };
  if (end.how === 'failed') return { status: 'error', message: end.message };
  const { outcome, records } = end;
  switch (outcome?.status) {
    case 'cancelled':
      return { status: 'stopped' };
    case 'error':
      return outcome;
    case 'compacted':
    case 'budget_reached':
    case 'ended':
      return undefined;
    case 'sign_in_required':
      return waits ? undefined : { status: 'waiting' };
    case 'answered':
    case undefined:
      break;
  }
  const message = records.find((record) => record.kind === 'model.message');
  if (!message) return { status: 'error', message: 'A model call has no message.' };
  const mayBeCutOff = outcome?.status === 'answered' && outcome.mayBeCutOff;
  if (message.finishReason === 'length' && !mayBeCutOff) return { status: 'error', message: LENGTH_REACHED };
  const isAnswer = message.toolCalls.length === 0 || input.isForced === true;
  return isAnswer && !violatesSchema(message) ? { status: 'done' } : undefined;
}
