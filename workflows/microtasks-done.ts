import { condition } from '@temporalio/workflow';

/**
 * Resolves at the end of the current workflow task, when all that follows from its jobs is done. The SDK evaluates a
 * condition when it is created, after each job of an activation, and after the last job whenever no microtask is left. One
 * that is created in a microtask meets no job, so its second evaluation is the one at the end.
 */
export async function microtasksDone(): Promise<void> {
  let evaluations = 0;
  await condition(() => evaluations++ > 0);
}
