import { runsInSandbox, type Call } from './call.ts';
import { isCode } from './code-threads.ts';
import type { ActivityResult, CallToolInput } from './history.ts';
import type { ToolResponse } from './records/results.ts';
import { withoutOutput } from './records/sandbox.ts';
import type { Threads } from './threads.ts';
import { outcomeText, unsuccessfulResponse, type CallKey } from './tool-records.ts';

/** How many hosts may be lost, one after the other, before a call can begin. */
const MAX_LOST_HOSTS = 3;

/** Whether a call has not begun because the host that was to run it is gone. */
export function isUnstarted(end: ActivityResult): boolean {
  return end.how === 'timed_out' && end.isUnstarted === true;
}

/** The calls of all models that are to run in the sandbox of the session, also those behind others. */
export function callsForSandbox(threads: Threads): Call[] {
  const all = [...threads.values()].flatMap((thread) => (isCode(thread) ? [] : [...thread.calls.values()]));
  return all.filter((call) => call.state === 'ready' && runsInSandbox(call));
}

/** Makes a call ready again whose host is gone and has not begun it. False if too many hosts were lost. */
export function beginAgain(threads: Threads, { threadId, toolCallId }: CallKey): boolean {
  const calls = threads.get(threadId)?.calls;
  const call = calls?.get(toolCallId);
  const lostHosts = (call?.lostHosts ?? 0) + 1;
  if (!calls || !call || !runsInSandbox(call) || lostHosts >= MAX_LOST_HOSTS) return false;
  const { hasBegun: _, ...rest } = call;
  calls.set(toolCallId, { ...rest, state: 'ready', lostHosts });
  return true;
}

/** The result of a call for which there is no sandbox. */
export function notStarted(call: CallKey, at: string, reason: string): Omit<ToolResponse, 'id'> {
  const text = `The call was not executed: ${reason}`;
  return { ...unsuccessfulResponse(call, 'failed', at, text), execution: withoutOutput('not_started') };
}

/** The result of a call whose activity has failed: its host was lost, or never reported the end of a cancelled call. */
export function lostInSandbox(
  call: Pick<CallToolInput, 'threadId' | 'toolCallId' | 'source' | 'edited'>,
  end: Exclude<ActivityResult, { how: 'completed' }>,
  at: string,
): Omit<ToolResponse, 'id'> {
  if (isUnstarted(end)) return notStarted(call, at, 'its kernel hosts were lost');
  if (end.how === 'cancelled' && !end.started) return unsuccessfulResponse(call, 'cancelled', at);
  if (end.how === 'failed') return unsuccessfulResponse(call, 'failed', at, `The tool call failed: ${end.message}`);
  const outcome = call.source.run?.effect === 'once' ? 'unknown_outcome' : 'failed';
  const text = `${outcomeText(outcome)} (its kernel host was lost; the variables of the kernel are lost with it)`;
  return { ...unsuccessfulResponse(call, outcome, at, text), execution: withoutOutput('lost') };
}
