import { Worker as Thread } from 'node:worker_threads';
import type { Logger } from '@temporalio/common';
import { Worker } from '@temporalio/worker';
import {
  ThreadedVMWorkflowCreator,
  WorkerThreadClient,
  type CompiledWorkerOptions,
  type WorkerThreadInput,
  type WorkerThreadOutput,
  type WorkflowBundleWithSourceMapAndFilename,
  type WorkflowCreator,
} from './sdk-worker-internals.ts';
import { NamedError } from '../lib/errors.ts';

/**
 * The SDK's worker with a workflow thread that takes a third of the processor time.
 *
 * The SDK passes a time-out to each entry into the sandbox, several per workflow task, and Node starts and joins a thread
 * for each: half of the workflow thread's time. A further fifth is for the stack that it records for each promise.
 * Neither is needed for workflow code that never blocks, and this worker runs only Everturn's. Its process watches the
 * workflow thread from outside instead. If a workflow blocks it, the SDK's own thread replaces it, whose time-outs then
 * fail the tasks of that workflow and of no other.
 */
export class LeanWorker extends Worker {
  protected static override async createWorkflowCreator(
    workflowBundle: WorkflowBundleWithSourceMapAndFilename,
    options: CompiledWorkerOptions,
    logger: Logger,
  ): Promise<WorkflowCreator> {
    const thread = new WatchedThread(logger);
    await thread.send({
      type: 'init',
      workflowBundle,
      // For `vm`, undefined is the only value that means no time-out. The SDK's type assumes that there is one.
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- passed to `vm` as it is
      isolateExecutionTimeoutMs: undefined as unknown as number,
      reuseV8Context: true,
      registeredActivityNames: new Set(options.activities.keys()),
      hasPatchActivationCallback: false,
    });
    let creator: WorkflowCreator | Promise<WorkflowCreator> = new ThreadedVMWorkflowCreator([thread]);
    thread.watch((runIds) => {
      logger.error(
        `a workflow blocked the workflow thread for ${BLOCKED_SECONDS} seconds: one of these runs. The thread is ` +
          'replaced by one with time-outs, on which all workflows continue',
        { runIds },
      );
      // The workflows of the previous thread are lost; the SDK creates each anew at its next task.
      creator = super.createWorkflowCreator(workflowBundle, options, logger);
    });
    return {
      createWorkflow: async (workflow) => (await creator).createWorkflow(workflow),
      destroy: async () => (await creator).destroy(),
    };
  }
}

/** The SDK's limit for one entry into the sandbox. */
const BLOCKED_SECONDS = 5;

class ThreadBlockedError extends NamedError {}

/** A workflow thread that is terminated if it does not respond. */
class WatchedThread extends WorkerThreadClient {
  readonly #open = new Set<WorkerThreadInput>();
  #silentSeconds = 0;
  #isBlocked = false;

  constructor(logger: Logger) {
    super(new Thread(new URL('workflow-thread.ts', import.meta.url)), logger);
  }

  /**
   * Terminates the thread if it responds to no request for {@link BLOCKED_SECONDS}, and calls `onBlocked` with the
   * workflow runs whose requests are open.
   */
  watch(onBlocked: (runIds: string[]) => void): void {
    // Ticks are counted, not time: a process that was stopped for a while gets one tick when it continues.
    const ticks = setInterval(() => {
      this.#silentSeconds = this.#open.size > 0 ? this.#silentSeconds + 1 : 0;
      if (this.#silentSeconds <= BLOCKED_SECONDS) return;
      clearInterval(ticks);
      this.#isBlocked = true;
      void this.workerThread.terminate();
      onBlocked([...this.#open].flatMap((input) => ('runId' in input ? [input.runId] : [])));
    }, 1000).unref();
    this.workerThread.once('exit', () => clearInterval(ticks));
  }

  override async send(input: WorkerThreadInput): Promise<WorkerThreadOutput> {
    this.#open.add(input);
    try {
      return await super.send(input);
    } catch (error) {
      // The SDK ends the worker at an error of the thread, but repeats the workflow task at any other.
      throw this.#isBlocked ? new ThreadBlockedError('a workflow blocked the thread of this workflow') : error;
    } finally {
      this.#open.delete(input);
      this.#silentSeconds = 0;
    }
  }
}
