import type { Call } from './call.ts';
import type { TurnStart } from './history.ts';
import { ROOT_THREAD, type ThreadEnding } from './records/threads.ts';
import { countedSteps, type Thread, type Threads } from './threads.ts';

/** The sub-agents that an agent which acts in code has started: see `isTask` of `SubAgent`. */

export function startsTask({ source }: Pick<Call, 'source'>): boolean {
  return source?.run?.startsTask === true;
}

/**
 * The ready calls of a thread that may begin. Calls that start tasks begin only while there is room beside the tasks of
 * the thread that are not done. A task that waits for a person is not done.
 */
export function withRoom(
  ready: readonly Call[],
  threadId: string,
  { threads, limits }: { threads: Threads; limits: Pick<TurnStart['limits'], 'tasks'> },
): Call[] {
  const thread = threads.get(threadId);
  const max = (threadId === ROOT_THREAD ? limits.tasks : thread?.agent?.maxTasks) ?? Infinity;
  const beginning = [...(thread?.calls.values() ?? [])].filter((call) => startsTask(call) && call.state === 'running');
  const open = [...threads.values()].filter(({ agent }) => agent?.isTask && agent.parent.threadId === threadId);
  let room = max - beginning.length - open.length;
  return ready.filter((call) => !startsTask(call) || room-- > 0);
}

/** Whether a thread ends because a person has denied a call of it. Allowed calls run before. */
export function endsByDenial({ agent, isDenied }: Thread, start: Pick<TurnStart, 'endsOnDenial'>): boolean {
  return isDenied && (agent ?? start).endsOnDenial === true;
}

/** Why a thread ends with its last message instead of calling its model again; undefined if it does not. */
export function endingOf(thread: Thread, start: Pick<TurnStart, 'endsOnDenial'>): ThreadEnding | undefined {
  if (endsByDenial(thread, start)) return 'denial';
  const { agent } = thread;
  return agent?.isTask && countedSteps(thread) >= agent.iterations ? 'max_turns' : undefined;
}
