import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import type { coresdk } from '@temporalio/proto';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
import { msToTs } from '../../src/temporal/sdk-internals.ts';
import type {
  CompiledWorkerOptions,
  Workflow,
  WorkflowBundleWithSourceMapAndFilename,
  WorkflowCreateOptions,
  WorkflowCreator,
} from '../../src/temporal/sdk-worker-internals.ts';
import { LeanWorker } from '../../src/temporal/workflow-threads.ts';

export type Job = coresdk.workflow_activation.IWorkflowActivationJob;

/** Creates workflows as a worker does, without a server. */
class Serverless extends LeanWorker {
  static async creator(): Promise<WorkflowCreator> {
    const workflowsPath = fileURLToPath(new URL('sandboxed-workflows.ts', import.meta.url));
    const logger = new DefaultLogger('ERROR');
    const { code } = await bundleWorkflowCode({ workflowsPath, logger });
    const bundle = { code, filename: 'bundle.js', sourceMap: { version: 3, sources: [], names: [], mappings: '' } };
    return this.createWorkflowCreator(
      bundle as unknown as WorkflowBundleWithSourceMapAndFilename,
      { activities: new Map() } as unknown as CompiledWorkerOptions,
      logger,
    );
  }
}

export function toPayload(value: unknown): Payload {
  return defaultPayloadConverter.toPayload(value);
}

/** Bundling and starting a thread take two seconds: there is one per process, and it ends with the process. */
let creator: Promise<WorkflowCreator> | undefined;

const NOW = Date.parse('2026-11-21T08:00:00.000Z');

/** One of `sandboxed-workflows.ts` in a workflow thread. The test sends what a server would: the jobs of each task. */
export class ActivatedWorkflow implements AsyncDisposable {
  readonly #runId: string;
  readonly #workflow: Workflow;
  /** How many events its history has according to the server. */
  historyLength = 3;
  /** When the next task starts according to the server: milliseconds since 1970. */
  now = NOW;

  private constructor(runId: string, workflow: Workflow) {
    this.#runId = runId;
    this.#workflow = workflow;
  }

  static async create(workflowType: string): Promise<ActivatedWorkflow> {
    creator ??= Serverless.creator();
    const runId = randomUUID();
    const at = new Date(NOW);
    const info = {
      workflowId: 'tests',
      workflowType,
      runId,
      firstExecutionRunId: runId,
      originalExecutionRunId: runId,
      namespace: 'default',
      taskQueue: 'tests',
      startTime: at,
      runStartTime: at,
      taskTimeoutMs: 10_000,
      attempt: 1,
      searchAttributes: {},
      historyLength: 3,
      historySize: 0,
      continueAsNewSuggested: false,
      unsafe: { isReplaying: false },
    } as unknown as WorkflowCreateOptions['info'];
    const seed = [1, 2, 3, 4, 5, 6, 7, 8];
    const options = { info, randomnessSeed: seed, now: NOW, showStackTraceSources: false };
    return new ActivatedWorkflow(runId, await (await creator).createWorkflow(options));
  }

  /** Runs a task. Returns the commands that it gives. @throws Error if it fails */
  async activate(...jobs: Job[]): Promise<coresdk.workflow_commands.IWorkflowCommand[]> {
    const { historyLength } = this;
    const task = { runId: this.#runId, timestamp: msToTs(this.now), historyLength, jobs };
    const { successful, failed } = await this.#workflow.activate(task);
    if (!successful) throw new Error(failed?.failure?.message ?? 'the task has no result');
    return successful.commands ?? [];
  }

  /** The functions of sinks that it has called since this was asked last. */
  async sinkCalls(): Promise<string[]> {
    return (await this.#workflow.getAndResetSinkCalls()).map(({ ifaceName, fnName }) => `${ifaceName}.${fnName}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#workflow.dispose();
  }
}
