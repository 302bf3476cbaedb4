import type { ActivityResult, ScheduledActivity } from './history.ts';
import { isMisfit, type OpenThread, type PlannedMessage, type SubAgent, type TurnError } from './records.ts';

/** How a thread has ended with its last model call. A sub-agent that is done has ended in the log, and has no state. */
export type ThreadEnd =
  | { status: 'done' }
  /** Its servers require sign-ins, in a turn that ends then. */
  | { status: 'waiting' }
  /** Its model call was cancelled. */
  | { status: 'stopped' }
  | TurnError;

/** What a thread of a turn has done, as far as it decides what it does next. */
export interface ThreadState {
  /** Its model calls, and the message that its client has given. */
  steps: number;
  /** How many of the steps have found that a sign-in is missing. They do not count against its limit. */
  refused: number;
  /** The first step was the message with which the client's conversation ends: no model was called. */
  isGiven: boolean;
  /** How many records the log had when it last called its model; 0 in a run that has not called it. */
  read: number;
  /** The message for which the model was not called: the conversation was compacted, or a budget was reached. */
  planned?: PlannedMessage | undefined;
  /** It has begun to connect to its servers, in this run. */
  isConnected: boolean;
  end?: ThreadEnd | undefined;
  /** Undefined for the root agent. */
  agent?: SubAgent | undefined;
}

/** What a thread passes on when its run continues as new. */
export type ThreadProgress = Pick<OpenThread, 'steps' | 'refused' | 'planned'>;

type Input<Name extends ScheduledActivity['name']> = Extract<ScheduledActivity, { name: Name }>['input'];

/** A thread at the beginning of its work, or of a run that continues it. */
export function threadState(
  { steps, refused = 0, planned }: ThreadProgress,
  more: Partial<ThreadState> = {},
): ThreadState {
  return { steps, refused, isGiven: false, read: 0, planned, isConnected: false, ...more };
}

export function progressOf({ steps, refused, planned }: ThreadState): ThreadProgress {
  return { steps, ...(refused > 0 && { refused }), ...(planned && { planned }) };
}

/** The steps that count against the thread's limit. */
export function countedSteps({ steps, refused, isGiven }: ThreadState): number {
  return steps - refused - (isGiven ? 1 : 0);
}

/** The thread calls its model. */
export function modelCalled(thread: ThreadState, { step, upTo }: Input<'callModel'>): void {
  Object.assign(thread, { steps: step, read: upTo, planned: undefined, end: undefined });
}

/** A model call of the thread has ended. `waits`: the turn waits for sign-ins. */
export function modelEnded(thread: ThreadState, input: Input<'callModel'>, end: ActivityResult, waits: boolean): void {
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
function endAfter(input: Input<'callModel'>, end: ActivityResult, waits: boolean): ThreadEnd | undefined {
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
  return isAnswer && !isMisfit(message) ? { status: 'done' } : undefined;
}
