import type { SessionRow } from '../../../catalog/schema.ts';
import type { ResumeCellInput } from '../../../core/history.ts';
import type { NewRecord } from '../../../core/records/log.ts';
import { withoutOutput } from '../../../core/records/sandbox.ts';
import type { CallReply } from '../kernel/kernel-calls.ts';
import type { CodeMessage, Requested } from './code-message.ts';
import { ofTool, type CodeCall, type EndedCall, type RunningCall } from './code-step.ts';
import { threadCreated, threadDone } from './code-thread-records.ts';
import type { CodeToolset } from './code-toolset.ts';
import type { Piece } from './piece.ts';
import type { PublishedOutput } from './published-output.ts';
import type { CellStep, ThreadKernel } from './thread-kernel.ts';

/** Where code stops: it has ended, asks for something, or is gone. */
export type Stop = CellStep | { lost: string };

/** A cell that waits for the results of its calls, or whose code runs while its turn has not begun the next piece. */
export interface WaitingCell extends Pick<CodeThread, 'kernel' | 'waitedMs' | 'output' | 'stop'> {
  call: CodeCall;
  /** Set if the code runs on: where it stops next. */
  runsOn?: Promise<Stop>;
  /** The turn in which it has asked, or the one that has decided. */
  turnId: string;
  /** How many messages its thread has. */
  step: number;
  running: Omit<RunningCall, 'signal'>;
  /** What the last message asks for. */
  requested: Requested[];
  /** Whether people decide on some of them. */
  asks: boolean;
  /** Milliseconds since 1970. */
  stoppedAt: number;
  /** When all decisions were made, if tools were to be called then. */
  checkedAt?: number;
}

/** The thread of what a cell calls, which begins with the first calls. */
export interface CodeThread {
  kernel: ThreadKernel;
  threadId: string;
  turnId: string;
  /** How many messages the thread has with the next one. */
  step: number;
  /** How long it has waited for people so far, in milliseconds. */
  waitedMs: number;
  output: PublishedOutput;
  /** Ends the code where it is. */
  stop: AbortController;
  piece: Piece;
  /** What its messages are decided with, which in the seconds of a piece is found once. The rules are not. */
  found: { toolset?: CodeToolset; session?: SessionRow | undefined };
  /** The code, until the log has the thread. */
  code?: string | undefined;
}

export type RunningThread = RunningCall & CodeThread;

/** Whether the log has the thread: it begins with the first message. */
export function hasBegun({ code }: CodeThread): boolean {
  return code === undefined;
}

/** The record with which the thread begins, before its first message. */
export function threadBegin(call: CodeCall, thread: CodeThread, { at }: CodeMessage['message']): NewRecord[] {
  const { threadId, code } = thread;
  if (code === undefined) return [];
  thread.code = undefined;
  return [threadCreated(call, { threadId, code, at })];
}

/** How long a cell has waited for people, and when its tools were called: milliseconds since 1970. */
export function waitOf(
  waiting: WaitingCell,
  { turnId, waitedMs: turnWaitedMs = 0 }: Pick<ResumeCellInput, 'turnId' | 'waitedMs'>,
): { waitedMs: number; calledAt: number } {
  const { asks, stoppedAt, checkedAt, waitedMs } = waiting;
  // A turn that ends while code waits does so for people: to decide, or to sign in.
  const waitedForPeople = asks || turnId !== waiting.turnId;
  const now = Date.now();
  const decidedAfter = waitedForPeople ? (checkedAt ?? now) - stoppedAt : 0;
  // While nothing else runs, the turn waits for each sign-in, also for one that a call has needed after it was allowed.
  const waitedNow = Math.min(Math.max(decidedAfter, turnWaitedMs), now - stoppedAt);
  return { waitedMs: waitedMs + waitedNow, calledAt: stoppedAt + waitedNow };
}

/** Gives code its answers, and runs it until it stops. @param since when it has begun to wait for tools */
export async function goOn(
  { kernel, threadId, turnId, stop }: CodeThread,
  answers: CallReply[],
  since: number,
): Promise<Stop> {
  const lost = kernel.lossOf(threadId);
  if (lost !== undefined) return { lost };
  return kernel.resume({ id: threadId, signal: stop.signal, turnId }, answers, { spentMs: Date.now() - since });
}

/** The result of a cell that does not end by itself. */
export function lostCell(
  call: CodeCall,
  thread: CodeThread,
  { outcome, text }: { outcome: 'failed' | 'unknown_outcome'; text: string },
): EndedCall {
  const { threadId } = thread;
  const events = hasBegun(thread) ? [threadDone(call, { threadId, outcome, text, exit: 'lost' })] : [];
  return { ...ofTool(call), outcome, text, execution: withoutOutput('lost'), events };
}
