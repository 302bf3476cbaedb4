import type { SessionRow } from '../../../catalog/schema.ts';
import type { ResumeCellInput } from '../../../core/history.ts';
import type { NewRecord } from '../../../core/records/log.ts';
import { withoutOutput } from '../../../core/records/sandbox.ts';
import type { CallReply } from '../kernel/kernel-calls.ts';
import type { CodeMessage, Requested } from './code-message.ts';
import { ofTool, type CodeCall, type EndedCall, type RunningCall } from './code-step.ts';
import { cellThreadCreated, cellThreadDone } from './code-thread-records.ts';
import type { CodeToolset } from './code-toolset.ts';
import type { Piece } from './piece.ts';
import type { PublishedOutput } from './published-output.ts';
import type { CellStep, ThreadKernel } from './thread-kernel.ts';

/** A stop of code: it has ended, requests calls, or was lost. */
export type Stop = CellStep | { lost: string };

/** A cell that waits for the results of its calls, or whose code runs before its turn has begun the next piece. */
export interface WaitingCell extends Pick<CodeThread, 'kernel' | 'waitedMs' | 'output' | 'stop'> {
  call: CodeCall;
  /** Set if the code is running: its next stop. */
  runsOn?: Promise<Stop>;
  /** The turn in which it made its calls, or in which these were decided. */
  turnId: string;
  /** The number of messages in its thread. */
  step: number;
  running: Omit<RunningCall, 'signal'>;
  /** The requests of the last message. */
  requested: Requested[];
  /** Whether people decide on some of them. */
  asks: boolean;
  /** Milliseconds since 1970. */
  stoppedAt: number;
  /** The time of the last decision, if tools were to be called then. */
  checkedAt?: number;
}

/** The thread with the calls of a cell, which begins with its first message. */
export interface CodeThread {
  kernel: ThreadKernel;
  threadId: string;
  turnId: string;
  /** The number of messages in the thread, including the next one. */
  step: number;
  /** The time for which it has waited for people so far, in milliseconds. */
  waitedMs: number;
  output: PublishedOutput;
  /** Ends the code where it is. */
  stop: AbortController;
  piece: Piece;
  /** Data for the decisions on its messages, loaded once for the few seconds of a piece. The rules are not cached. */
  found: { toolset?: CodeToolset; session?: SessionRow | undefined };
  /** The code, until the log has the thread. */
  code?: string | undefined;
}

export type RunningThread = RunningCall & CodeThread;

/** Whether the log has the thread: it begins with the first message. */
export function hasThreadBegun({ code }: CodeThread): boolean {
  return code === undefined;
}

/** The record with which the thread begins, before its first message. */
export function threadBegin(call: CodeCall, thread: CodeThread, { at }: CodeMessage['message']): NewRecord[] {
  const { threadId, code } = thread;
  if (code === undefined) return [];
  thread.code = undefined;
  return [cellThreadCreated(call, { threadId, code, at })];
}

/** How long a cell has waited for people, and when its tools were called: milliseconds since 1970. */
export function cellWait(
  waiting: WaitingCell,
  { turnId, waitedMs: turnWaitedMs = 0 }: Pick<ResumeCellInput, 'turnId' | 'waitedMs'>,
): { waitedMs: number; calledAt: number } {
  const { asks, stoppedAt, checkedAt, waitedMs } = waiting;
  // A turn ends while code waits only if a person has to decide or to sign in.
  const waitedForPeople = asks || turnId !== waiting.turnId;
  const now = Date.now();
  const decidedAfter = waitedForPeople ? (checkedAt ?? now) - stoppedAt : 0;
  // While nothing else runs, the turn waits for each sign-in, also if a call needs it after its approval.
  const waitedNow = Math.min(Math.max(decidedAfter, turnWaitedMs), now - stoppedAt);
  return { waitedMs: waitedMs + waitedNow, calledAt: stoppedAt + waitedNow };
}

/** Sends code the replies to its calls, and runs it until it stops. @param since when it began to wait for tools */
export async function resumeCode(
  { kernel, threadId, turnId, stop }: CodeThread,
  answers: CallReply[],
  since: number,
): Promise<Stop> {
  const lost = kernel.lossOf(threadId);
  if (lost !== undefined) return { lost };
  return kernel.resume({ id: threadId, signal: stop.signal, turnId }, answers, { spentMs: Date.now() - since });
}

/** The result of a cell that was lost. */
export function lostCell(
  call: CodeCall,
  thread: CodeThread,
  { outcome, text }: { outcome: 'failed' | 'unknown_outcome'; text: string },
): EndedCall {
  const { threadId } = thread;
  const events = hasThreadBegun(thread) ? [cellThreadDone(call, { threadId, outcome, text, exit: 'lost' })] : [];
  return { ...ofTool(call), outcome, text, execution: withoutOutput('lost'), events };
}
