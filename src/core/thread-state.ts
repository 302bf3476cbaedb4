import type { ActivityResult, ScheduledActivity } from './history.ts';
import type { OpenThread, PlannedMessage } from './records.ts';
import { hasNoResult } from './tool-records.ts';

/** What a thread of a turn has done, as far as it decides what it does next. */
export interface ThreadState {
  /** Its model calls, and the message that its client has given. */
  steps: number;
  /** How many of the steps have found that a sign-in is missing. They do not count against its limit. */
  refused: number;
  /** The first step was the message with which the client's conversation ends: no model was called. */
  isGiven: boolean;
  /** A call that its server has run has no result. */
  lacksResult: boolean;
  /** How many records the log had when it last called its model; 0 in a run that has not called it. */
  read: number;
  /** The message for which the model was not called: the conversation was compacted, or a budget was reached. */
  planned?: PlannedMessage | undefined;
}

/** What a thread passes on when its run continues as new. */
export type ThreadProgress = Pick<OpenThread, 'steps' | 'refused' | 'planned'>;

type Input<Name extends ScheduledActivity['name']> = Extract<ScheduledActivity, { name: Name }>['input'];

/** A thread at the beginning of its work, or of a run that continues it. */
export function threadState(
  { steps, refused = 0, planned }: ThreadProgress,
  more: Partial<ThreadState> = {},
): ThreadState {
  return { steps, refused, isGiven: false, lacksResult: false, read: 0, planned, ...more };
}

export function progressOf({ steps, refused, planned }: ThreadState): ThreadProgress {
  return { steps, ...(refused > 0 && { refused }), ...(planned && { planned }) };
}

/** The thread calls its model. */
export function modelCalled(thread: ThreadState, { step, upTo }: Input<'callModel'>): void {
  Object.assign(thread, { steps: step, read: upTo, planned: undefined });
}

/** A model call of the thread has ended. */
export function modelEnded(thread: ThreadState, input: Input<'callModel'>, end: ActivityResult): void {
  if (end.how !== 'completed') return;
  const { status } = end.outcome ?? {};
  if (status === 'compacted' || status === 'budget_reached') {
    thread.steps -= 1;
    const { messageId, createdAt } = input;
    thread.planned = { messageId, createdAt };
  }
  if (status === 'sign_in_required') thread.refused += 1;
  for (const record of end.records) if (record.kind === 'model.message') thread.isGiven ||= record.isGiven === true;
  noteFailures(thread, end.records);
}

/** A tool call of the thread has ended. `isOpen`: it waits, and has no result yet. */
export function toolEnded(thread: ThreadState, end: ActivityResult, isOpen: boolean): void {
  if (end.how === 'completed') noteFailures(thread, end.records);
  // Its outcome is unknown.
  else if (end.how !== 'cancelled' && !isOpen) thread.lacksResult = true;
}

function noteFailures(thread: ThreadState, records: Extract<ActivityResult, { how: 'completed' }>['records']): void {
  thread.lacksResult ||= records.some((record) => record.kind === 'tool.response' && hasNoResult(record));
}
