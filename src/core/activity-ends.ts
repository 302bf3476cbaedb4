import { runsInSandbox } from './call.ts';
import type { ActivityResult, ScheduledActivity, ScheduledInput } from './history.ts';
import type { NewRecord, UnsequencedRecord } from './records/log.ts';
import { emptyResponse } from './records/message.ts';
import type { PendingCall } from './records/pending.ts';
import type { SubAgent } from './records/threads.ts';
import { UNREPORTED } from './records/usage.ts';
import { lostInSandbox } from './sandbox.ts';
import { endOfThread, failureText } from './sub-agents.ts';
import { outcomeText, unsuccessfulResponse, waitingAfter } from './tool-records.ts';

/** What follows from the end of an activity of a turn, or from the lack of one. */

/** What a call waits for after its activity has ended without a result. */
export function waitingAfterEnd(activity: ScheduledActivity, end: ActivityResult): PendingCall | undefined {
  if (activity.name !== 'callTool' || end.how === 'cancelled') return undefined;
  return waitingAfter(activity.input, end.how === 'completed' ? end : 'lost');
}

/** The records for a failed activity of a thread. A sub-agent whose model call has failed ends, too. */
export function recordsOfFailure(
  activity: Exclude<ScheduledActivity, { name: 'openSandbox' | 'resumeCell' }>,
  end: Exclude<ActivityResult, { how: 'completed' }>,
  at: string,
  subAgent: SubAgent | undefined,
): UnsequencedRecord[] {
  switch (activity.name) {
    case 'connectTools':
      return [];
    case 'callModel': {
      const isCancelled = end.how === 'cancelled';
      const records = unansweredCall(activity.input, isCancelled ? 'cancelled' : 'error');
      if (!subAgent) return records;
      const message = end.how === 'failed' ? end.message : 'its model call was lost';
      const failed = { at, end: { status: 'error' as const, message }, answer: failureText(message), isCancelled };
      return [...records, ...endOfThread(subAgent, failed)];
    }
    case 'callTool': {
      if (runsInSandbox(activity.input)) return [lostInSandbox(activity.input, end, at)];
      const effect = activity.input.source.run?.effect;
      const isContinued = activity.input.answered !== undefined || activity.input.repeats === true;
      const outcome = outcomeOfFailure({ effect, isContinued }, end);
      // An attempt that is to be retried leaves no event in the history, so the call may have been started.
      const text =
        outcome === 'cancelled' && effect === 'retry' ? 'The tool call was cancelled.' : outcomeText(outcome);
      return [unsuccessfulResponse(activity.input, outcome, at, text)];
    }
  }
}

/** The message of a model call without a result, unless no model was called. */
export function unansweredCall(input: ScheduledInput<'callModel'>, finishReason: 'cancelled' | 'error'): NewRecord[] {
  return input.ends ? [] : emptyResponse(input, finishReason, UNREPORTED);
}

/** Adds the last message of a done thread to the record of its end, which directly follows it, unless that has one. */
export function withOutputs(records: UnsequencedRecord[]): UnsequencedRecord[] {
  return records.map((record, i) => {
    const output = records[i - 1];
    const isDone = record.kind === 'thread.done' && record.end.status === 'done' && !record.output;
    return isDone && output?.kind === 'model.message' ? { ...record, output } : record;
  });
}

/**
 * The outcome of a call whose activity failed: `callTool` returns every known outcome. Without a result, the outcome is
 * certain only for a tool that may run twice, and for a call that never reached a worker. A call that continues with an
 * answer of the user, or runs again, has reached a worker before.
 */
function outcomeOfFailure(
  { effect, isContinued }: { effect: 'retry' | 'once' | undefined; isContinued: boolean },
  end: Exclude<ActivityResult, { how: 'completed' }>,
): 'cancelled' | 'unknown_outcome' | 'failed' {
  if (end.how === 'cancelled' && !end.started && !(effect === 'once' && isContinued)) return 'cancelled';
  return effect === 'once' ? 'unknown_outcome' : 'failed';
}
