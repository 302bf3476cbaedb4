import { isCell, isUnanswered, readyOf, runsInSandbox, type Call } from './call.ts';
import type { ActivityResult, ResumeCellInput } from './history.ts';
import type { NewRecord } from './records/log.ts';
import type { ToolOutcome } from './records/results.ts';
import { withoutOutput } from './records/sandbox.ts';
import type { SubAgent } from './records/threads.ts';
import type { Thread, Threads } from './threads.ts';
import { callKey, outcomeText, unsuccessfulResponse } from './tool-records.ts';

/**
 * A cell is a thread whose model is a program: its messages are the calls that the code has made together, and instead
 * of a model call, `resumeCell` passes their results to the code, which runs until it makes the next ones, or ends.
 */
export function isCode({ agent }: Pick<Thread, 'agent'>): boolean {
  return agent?.code !== undefined;
}

/**
 * The tools that may be called now. The calls of a message begin when people have decided on all of them: only then it
 * is checked that the code still waits. Commands are not among them: the cell runs them itself when it resumes.
 */
export function readyOfCode(calls: Iterable<Call>): Call[] {
  const all = [...calls];
  return all.some(isUnanswered) ? [] : readyOf(all).filter((call) => !runsInSandbox(call));
}

/** The commands that a cell may run when it resumes. */
export function commandsOf(calls: Iterable<Call>): Call[] {
  return [...calls].filter((call) => call.state === 'ready' && runsInSandbox(call));
}

/** A cell that has begun and not ended. */
export interface OpenCell {
  call: Call;
  /** The thread of its calls, if it has made any. */
  code?: Thread;
}

export function openCells(threads: Threads): OpenCell[] {
  const all = [...threads.values()];
  const codes = new Map(all.flatMap((code) => (code.agent?.code ? [[callKey(code.agent.parent), code]] : [])));
  return all.flatMap(({ calls }) =>
    [...calls.values()].filter(isCell).flatMap((call): OpenCell[] => {
      const code = codes.get(callKey(call));
      if (code) return [{ call, code }];
      return call.state === 'running' ? [{ call }] : [];
    }),
  );
}

/** The calls of interrupted code that have not begun or wait: they will not run. @param isForced all code was */
export function callsOfInterrupted(threads: Threads, isForced: boolean): Call[] {
  return [...threads.values()].flatMap(({ agent, calls }) => {
    if (!agent?.code) return [];
    const { threadId, toolCallId } = agent.parent;
    if (!isForced && !threads.get(threadId)?.calls.get(toolCallId)?.isInterrupted) return [];
    return [...calls.values()].filter((call) => call.state === 'ready' || isUnanswered(call));
  });
}

/** Whether a cell resumes now, or is to be checked: none of its calls waits for an answer or runs. */
function isToResume({ calls }: Thread): boolean {
  return [...calls.values()].every((call) => !isUnanswered(call) && call.state !== 'running');
}

/** The threads of code that need the host of the sandbox now. */
export function codeToResume(threads: Threads): Thread[] {
  return [...threads.values()].filter((thread) => isCode(thread) && isToResume(thread));
}

/** Why the cell of a thread is lost, from the end of the activity that was to resume it; undefined if it is not. */
export function lossOf(end: ActivityResult): string | undefined {
  if (end.how === 'completed') return end.lost;
  // The turn ends, and the code with it.
  if (end.how === 'cancelled') return undefined;
  return end.how === 'failed' ? end.message : 'its kernel host was lost';
}

/**
 * The records that end a thread of code whose cell does not resume. Calls that have not begun are not executed. Calls
 * that had begun when the code was lost may have taken effect.
 */
export function endOfLostCell(
  { agent, calls }: Thread,
  { at, reason, hasGoneOn = false }: { at: string; reason: string; hasGoneOn?: boolean },
): NewRecord[] {
  if (!agent) return [];
  const message = `the code was lost: ${reason}`;
  const text = hasGoneOn
    ? `${outcomeText('unknown_outcome')} (${reason}; the variables of the kernel are lost)`
    : `The code did not go on after its last calls: ${reason}. The variables of the kernel are lost.`;
  const outcome = hasGoneOn ? 'unknown_outcome' : 'failed';
  // The cell would have run its commands when it resumed.
  const unstarted = (call: Call): boolean => !call.hasBegun || (!hasGoneOn && runsInSandbox(call));
  const open = [...calls.values()].filter(({ state }) => state !== 'settled');
  const results = open.map((call) => unsuccessfulResponse(call, unstarted(call) ? 'cancelled' : 'unknown_outcome', at));
  return [...results, ...endOfCode(agent, { at, message, text, outcome })];
}

/** The records with which a thread of code ends because its turn does. */
export function endOfStoppedCell(agent: SubAgent, { at, message }: { at: string; message: string }): NewRecord[] {
  const text = `The code was interrupted: ${message}.`;
  return endOfCode(agent, { at, message, text, outcome: 'cancelled' });
}

interface CodeEnd {
  at: string;
  message: string;
  /** The result for the model. */
  text: string;
  outcome: Exclude<ToolOutcome, 'succeeded' | 'denied'>;
}

function endOfCode({ threadId, title, parent }: SubAgent, { at, message, text, outcome }: CodeEnd): NewRecord[] {
  const exit = outcome === 'cancelled' ? ('interrupted' as const) : ('lost' as const);
  return [
    { kind: 'thread.done', at, threadId, title, parent, end: { status: 'error', message } },
    { ...unsuccessfulResponse(parent, outcome, at, text), execution: withoutOutput(exit) },
  ];
}

/** What `resumeCell` is to do with the thread: only check it, if tools are to be called first. */
export function resumption(
  thread: Thread,
  { isInterrupted }: { isInterrupted: boolean },
): Pick<ResumeCellInput, 'step' | 'commands' | 'isCheck' | 'isInterrupted'> {
  const isCheck = readyOfCode(thread.calls.values()).length > 0;
  const commands = isCheck ? [] : commandsOf(thread.calls.values()).map(({ toolCallId }) => toolCallId);
  const how = isCheck ? { isCheck } : isInterrupted && { isInterrupted };
  return { step: thread.steps + 1, commands, ...how };
}
