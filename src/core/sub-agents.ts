import type { NewRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import type { SubAgent, ThreadDone } from './records/threads.ts';

/** How deep sub-agents may be nested: the root agent starts those of depth 1. */
export const MAX_DEPTH = 3;

/** How many sub-agents, and sessions of other agents, one message may start, and all messages of a turn together. */
export const MAX_STARTED_BY_MESSAGE = 10;
export const MAX_STARTED_BY_TURN = 50;

/**
 * How many calls of one message of a sub-agent may wait for a human or a client. All that wait in a turn are in one
 * payload of Temporal: 50 sub-agents with 10 calls take about 150 KiB.
 */
export const MAX_WAITING_CALLS = 10;

/** How many sub-agents the next message of a thread may start, after `started` others in its turn. */
export function startable(depth: number, started: number): number {
  return depth < MAX_DEPTH ? Math.max(0, Math.min(MAX_STARTED_BY_MESSAGE, MAX_STARTED_BY_TURN - started)) : 0;
}

interface ThreadEnd {
  at: string;
  end: ThreadDone['end'];
  /** The result for the model of the parent. */
  answer: string;
  isCancelled?: boolean;
  /** The last message of the thread, unless it directly precedes these records. */
  output?: ModelMessage;
}

/** The records with which a sub-agent ends: the end of its thread, and the result of the call that has started it. */
export function endOfThread(
  { threadId, title, parent }: Pick<SubAgent, 'threadId' | 'title' | 'parent'>,
  { at, end, answer, isCancelled = false, output }: ThreadEnd,
): NewRecord[] {
  const failure = isCancelled ? 'cancelled' : 'failed';
  const outcome = end.status === 'done' ? 'succeeded' : failure;
  return [
    { kind: 'thread.done', at, threadId, title, parent, end, ...(output && { output }) },
    { kind: 'tool.response', at, ...parent, outcome, content: answer, fromThread: threadId },
  ];
}

/** The result, for the parent's model, of a sub-agent that failed. */
export function failureText(message: string): string {
  return `The sub-agent failed: ${message}`;
}
