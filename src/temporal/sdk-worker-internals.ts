/**
 * What workers use of the SDK beyond its public API. Apart from `sdk-internals.ts`, because the API and the commands do
 * not load the worker, nor its workflow thread the client.
 */
export { ThreadedVMWorkflowCreator, WorkerThreadClient } from '@temporalio/worker/lib/workflow/threaded-vm.js';
export { globalHandlers } from '@temporalio/worker/lib/workflow/vm-shared.js';
export type { CompiledWorkerOptions } from '@temporalio/worker/lib/worker-options.js';
export type { Workflow, WorkflowCreateOptions, WorkflowCreator } from '@temporalio/worker/lib/workflow/interface.js';
export type {
  WorkerThreadInput,
  WorkflowBundleWithSourceMapAndFilename,
} from '@temporalio/worker/lib/workflow/workflow-worker-thread/input.js';
export type { WorkerThreadOutput } from '@temporalio/worker/lib/workflow/workflow-worker-thread/output.js';

/** Makes this thread a workflow thread. @throws IllegalStateError in the main thread */
export async function becomeWorkflowThread(): Promise<void> {
  await import('@temporalio/worker/lib/workflow/workflow-worker-thread.js');
}
